"""What clients that lie can do to a federation of ten."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from covey import Examples
from covey.base.events import AnswerRefused, WeightReduced
from covey.flower.server import NORM_FACTOR, NormRule, reduced_weights
from flower.liars import CLIENTS, NAMES, Lie, Ten, reasons, scaled, sets_all, told

BY_EXAMPLES = {"weights": "examples"}


@pytest.fixture
def ten(tmp_path: Path, digits: Examples) -> Ten:
    return Ten(tmp_path, digits)


def weighing(weight: float) -> Lie:
    def lie(said: dict[str, Any], update: dict[str, Any]) -> None:
        said["weight"] = weight
        scaled(-4.0)(said, update)

    return lie


def announcing(**changes: Any) -> Lie:
    return lambda said, _: said.update(changes)


ALL_ROUNDS = {
    "honest": (0, {}, {}),
    "a weight of 1e12": (1, BY_EXAMPLES, {"train": weighing(1e12)}),
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
    ten: Ten, liars: int, merge: Mapping[str, Any], lies: Mapping[str, Lie]
):
    ten.liars, ten.lies = NAMES[:liars], lies
    ten.write(aggregation=merge)
    least = 0.5 if "hello" in lies else 0.75  # five times as far, the other way
    assert ten.accuracy(ten.play()) > least


def test_a_weight_above_what_was_announced_is_refused(ten: Ten):
    ten.liars, ten.lies = NAMES[:1], {"train": weighing(1e12)}
    ten.write(aggregation=BY_EXAMPLES, rounds=2)
    result = ten.play()
    assert reasons(result) == [
        "its weight must be at most the 64 examples that it announced"
    ] * len(result.history.rounds)
    assert [r.participants for r in result.history.rounds] == [CLIENTS - 1] * 2


def test_who_announces_far_more_than_most_moves_the_mean_by_five_of_them(ten: Ten):
    ten.liars = NAMES[:1]
    ten.lies = {"train": weighing(1e9), "hello": announcing(examples=10**9)}
    ten.write(aggregation=BY_EXAMPLES, rounds=1)
    result = ten.play()
    (reduced,) = (each for each in told(result) if isinstance(each, WeightReduced))
    assert (reduced.handle, reduced.weight) == (result.names[NAMES[0]], 1e9)
    assert reduced.counted == pytest.approx(64 * 5 / 4, rel=0.2)  # four times as long


def test_finite_updates_whose_sum_is_not_move_no_model(ten: Ten):
    ten.liars, ten.lies = NAMES[:2], {"train": sets_all(3e38)}
    ten.write(rounds=2)
    grid = ten.grid()
    grid.files = dict(list(grid.files.items())[:2])  # too few to compare
    ten.grid = lambda: grid  # type: ignore[method-assign]
    result = ten.play(nodes=2)
    assert all(v.isfinite().all() for v in result.params(0).values())
    refused = [each for each in told(result) if isinstance(each, AnswerRefused)]
    assert {each.handle for each in refused} == set(result.names.values())
    assert all(
        each.reason.endswith("and the others must hold finite numbers only") for each in refused
    )
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


@given(st.lists(st.floats(1.0, NORM_FACTOR), min_size=3, max_size=9), st.integers(0, 9))
def test_updates_of_zero_refuse_nobody(honest, zeros):
    assert outsized(NormRule(), honest + [0.0] * zeros) == set()


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
