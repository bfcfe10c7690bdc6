"""Solved heads under masks: the same sums, and no two of them single anybody out."""

from collections.abc import Iterable
from typing import Any

import pytest
import torch

import covey
from algorithms.playing import hidden_run, rounds_of
from covey import ConfigError, ModelError, RoundResult
from covey.algorithms.sum_moves import SumParts, with_waiting_moves
from covey.algorithms.sums import masked_sums
from covey.base.events import MovesWaited, SumPerturbed
from covey.base.params import model_hash
from covey.models.ridge_state import ClusterSums
from covey.models.ridge_sums import Sums
from covey.secure_sums.messages import RoundGivenUpError
from covey.settings.run import BuiltRun, build_run
from secure_sums.playing import smallest_part

SOLVED: dict[str, Any] = {
    "rounds": 4,
    "model": {"name": "linear-head", "features": {"filters": 4, "size": 3, "pool": 2}},
    "risk": {"name": "none"},
    "population": {"clients": 24, "examples_per_client": 20, "minority_share": 0.25},
}


def built(*, secure: bool = True, **method: object) -> BuiltRun:
    by = {"name": "solved", "selection": "loss", "initialisation": "random", **method}
    privacy = {"secure_sums": secure, "min_cohort": 3}
    given = {**SOLVED, "method": by, "privacy": privacy}
    return build_run(covey.Config.model_validate(given))


def released(rounds: Iterable[RoundResult]) -> list[frozenset[str]]:
    """Who is in each sum of each round."""
    counted = [each.state.kept(ClusterSums).counted for each in rounds]
    return [
        frozenset(h for h, (c, _) in each.items() if c == j)
        for each in counted
        for j in {j for j, _ in each.values()}
    ]


NOISE = {"client_clip": 0.3, "client_noise": 0.05}


@pytest.mark.parametrize(("noise", "rounds"), [({}, 2), (NOISE, 1)], ids=["bare", "noisy"])
def test_masks_change_no_bit(noise, rounds):
    how = {**SOLVED, "model": {**SOLVED["model"], "norm": 3.8}}
    how["method"] = {"name": "solved", "num_clusters": 1}
    plain, masked = (
        [*rounds_of(hidden_run({**how, "privacy": {"secure_sums": each, **noise}}), rounds)]
        for each in (False, True)
    )
    for one, other in zip(plain, masked, strict=True):
        assert model_hash(one.state.clusters) == model_hash(other.state.clusters)
        assert one.events == other.events
        assert one.state.kept(ClusterSums).sums == other.state.kept(ClusterSums).sums
    told = any(isinstance(each, SumPerturbed) for each in masked[0].events)
    assert told == bool(noise)


def test_sums_are_of_who_is_counted_and_no_two_tell_of_few():
    run = built(num_clusters=3)
    assert run.records is not None
    by_handle = {client.handle: client.train for client in run.population.clients}
    rounds = [*rounds_of(run, 4)]
    for played in rounds:
        known = played.state.kept(ClusterSums)
        for j, sums in enumerate(known.sums):
            inside = [(by_handle[h], w) for h, (c, w) in known.counted.items() if c == j]
            assert sums == run.records.sums(inside, len(known.targets[0]))
        assert {h: j for h, (j, _) in known.counted.items()} == played.state.assignment
    assert any(isinstance(e, MovesWaited) for played in rounds for e in played.events)
    assert rounds[0].state.assignment != rounds[-1].state.assignment
    assert smallest_part(released(rounds)) >= 3
    # without the rule two rounds single clients out
    assert smallest_part(released(rounds_of(built(secure=False, num_clusters=3), 4))) < 3


def test_newcomers_wait_until_they_are_enough_and_who_left_is_in_no_sum_that_is_made_anew():
    run = built(num_clusters=1)
    start = run.algorithm.init(run.streams)
    after, counted, (waited,) = with_waiting_moves(start, {"A": 0, "B": 0}, 3)
    assert (counted, waited) == ({}, MovesWaited(("A", "B"), 3))
    _, counted, _ = with_waiting_moves(after, {"A": 0, "B": 0, "C": 0}, 3)
    assert counted == {"A": 0, "B": 0, "C": 0}
    (played,) = rounds_of(run, 1)
    gone, *others = (client.handle for client in run.population.clients)
    after, counted, waited = with_waiting_moves(played.state.without({gone}), {}, 3)
    assert set(counted) == set(after.kept(SumParts).parts) == set(others)
    assert not waited
    assert not after.kept(ClusterSums).sums


def sums(value: int) -> Sums:
    d, classes = 2, 3
    return Sums(torch.full((d * (d + 1) // 2,), value), torch.full((d, classes), -value))


def test_masked_sums_are_checked_as_others_are():
    few = {"A": lambda: sums(1), "B": lambda: sums(2)}
    with pytest.raises(RoundGivenUpError, match="2 of at least 3"):
        masked_sums(few, (2, 3), 3)
    three = {**few, "C": lambda: sums(4)}
    assert masked_sums(three, (2, 3), 3) == sums(7)
    with pytest.raises(ModelError, match="2\\^53"):
        masked_sums({**three, "D": lambda: sums(2**53)}, (2, 3), 3)
    with pytest.raises(ModelError, match="2\\^63"):
        masked_sums({**three, "D": lambda: sums(2**62)}, (2, 3), 3)


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({"method": {"name": "ifca"}}, "method.name = 'ifca'"),
        ({"method": {"name": "solved"}}, "initialisation = 'warm'"),
        ({"aggregation": {"name": "krum"}}, "aggregation.name = 'krum'"),
    ],
)
def test_what_cannot_be_had_under_masks_is_refused(changed, found):
    given = {"privacy": {"secure_sums": True}, "method": {"name": "solved"}} | changed
    with pytest.raises(ConfigError) as error:
        build_run(covey.Config.model_validate({**SOLVED, **given}))
    assert found in str(error.value)
    assert "privacy.secure_sums = True" in str(error.value)
