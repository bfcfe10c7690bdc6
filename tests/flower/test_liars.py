"""What clients that lie can do to a federation."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from covey import ScoringJob
from covey.api.parts import playable
from covey.base.events import WeightReduced
from covey.runs.folder import RunFolder
from covey.settings.clients import Overrides
from covey_flower.server import NORM_FACTOR, NormRule, reduced_weights
from flower.conftest import all_of, reasons, settings_with
from flower.liars import Lie, announcing, lying, sets_all, weighing

BY_EXAMPLES = {"weights": "examples"}
NAMES = tuple(f"client-{index:05}" for index in range(10))


def settings(rounds: int, **sections: Mapping[str, Any]) -> dict[str, object]:
    return settings_with(
        rounds=rounds, method={"name": "fedavg"}, risk={"name": "none"}, **sections
    )


ALL_ROUNDS = {
    "a weight of 1e308": (1, BY_EXAMPLES, {"train": weighing(1e308)}),
    "a weight of 1e9, announced": (
        1,
        BY_EXAMPLES,
        {"train": weighing(1e9), "hello": announcing(examples=10**9)},
    ),
    "two at 3e38": (2, {}, {"train": sets_all(3e38)}),
    "six at 0": (6, {}, {"train": sets_all(0)}),
}


@pytest.mark.slow
@pytest.mark.parametrize(("liars", "merge", "lies"), ALL_ROUNDS.values(), ids=ALL_ROUNDS.keys())
def test_who_lies_about_weight_or_length_spoils_no_model(
    build, digits, tmp_path, liars: int, merge: Mapping[str, Any], lies: Mapping[str, Lie]
):
    """Ten clients have 80 handwritten digits each."""
    (tmp_path / "eighty").mkdir()
    for index, name in enumerate(NAMES):
        own = digits.take(torch.arange(80 * index, 80 * (index + 1)))
        arrays = {"x": own.inputs[:, 0].numpy(), "y": own.labels.numpy()}
        np.savez(tmp_path / "eighty" / f"{name}.npz", allow_pickle=False, **arrays)
    more = {"model": {"name": "mlp"}, "train": {"local_epochs": 2}, "aggregation": merge}
    federation = build(settings(10, **more), range(10), tmp_path / "eighty")
    federation.wire = lying(NAMES[:liars], lies)
    result = federation.play(nodes=10)
    engine = playable(RunFolder(result.folder), Overrides(), "").engine
    unseen = digits.take(torch.arange(len(digits))[-500:])
    (scored,) = engine.score([ScoringJob(result.params(0), unseen)])
    least = 0.5 if "hello" in lies else 0.75  # five times as far, the other way
    assert scored.correct is not None
    assert float(scored.correct.mean()) > least


def test_who_announces_far_more_than_most_moves_the_mean_by_five_of_them(build):
    federation = build(settings(1, aggregation=BY_EXAMPLES), clients=range(6))
    lies = {"train": weighing(1e9), "hello": announcing(examples=10**9)}
    federation.wire = lying(NAMES[:1], lies)
    result = federation.play(nodes=6)
    (reduced,) = all_of(WeightReduced, result)
    assert (reduced.handle, reduced.weight) == (result.names[NAMES[0]], 1e9)
    assert reduced.counted == pytest.approx(80 * 5 / 4, rel=0.5)  # four times as long


def test_finite_updates_whose_sum_is_not_move_no_model(build):
    federation = build(settings(2), clients=range(2))  # too few to compare
    federation.wire = lying(NAMES[:2], {"train": sets_all(3e38)})
    result = federation.play(nodes=2)
    assert all(v.isfinite().all() for v in result.params(0).values())
    assert reasons(result)
    assert all(each.endswith("must hold finite numbers only") for each in reasons(result))
    assert result.summary.diverged


lengths = st.floats(1e-30, 1e30)


def outsized(rule: NormRule, norms: list[float]) -> set[str]:
    updates = {
        f"h{i}": {"w": torch.tensor([length], dtype=torch.float64)}
        for i, length in enumerate(norms)
    }
    return set(rule.outsized("choose", updates))


@given(st.lists(st.floats(1.0, NORM_FACTOR), min_size=3, max_size=9), st.data())
def test_fewer_liars_than_honest_clients_have_none_of_these_refused(honest, data):
    lies = data.draw(st.lists(lengths, max_size=len(honest) - 1))
    refused = outsized(NormRule(), honest + lies)
    assert not refused & {f"h{i}" for i in range(len(honest))}


@given(st.lists(st.floats(1.0, NORM_FACTOR), min_size=3, max_size=5), lengths)
def test_a_round_full_of_tiny_updates_refuses_no_usual_one(honest, tiny):
    rule = NormRule()
    outsized(rule, [1.0, 2.0, 3.0])
    assert outsized(rule, [1.0] + [min(tiny, 1e-3)] * len(honest)) == set()


@given(st.lists(st.tuples(st.floats(1, 9), st.floats(1, 9)), min_size=3, max_size=9), st.data())
def test_no_minority_moves_the_mean_by_more_than_five_honest_clients_each(honest, data):
    either = st.tuples(lengths, lengths)
    every = honest + data.draw(st.lists(either, max_size=len(honest) - 1))
    weights = {f"h{i}": weight for i, (weight, _) in enumerate(every)}
    updates = {
        f"h{i}": {"w": torch.tensor([length], dtype=torch.float64)}
        for i, (_, length) in enumerate(every)
    }
    counted = weights | reduced_weights(weights, updates)
    most = max(weight * length for weight, length in honest)
    for weight, (claimed, length) in zip(counted.values(), every, strict=True):
        assert weight <= claimed
        assert weight * length <= NORM_FACTOR * most * (1 + 1e-9)


def test_two_clients_cannot_be_compared():
    updates = {name: {"w": torch.ones(1)} for name in "ab"}
    assert reduced_weights({"a": 1.0, "b": 1e9}, updates) == {}
