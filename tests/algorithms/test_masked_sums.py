"""Solved heads under masks: the same sums, and no two of them single anybody out."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch

import covey
from covey import ConfigError, ModelError, RoundResult
from covey.algorithms.sum_moves import SumParts, with_waiting_moves
from covey.algorithms.sums import masked_sums
from covey.base.events import ClientsAssigned, MovesWaited, SumPerturbed
from covey.base.params import model_hash
from covey.dp.run_guarantees import is_known_fact
from covey.models.ridge_state import ClusterSums
from covey.models.ridge_sums import Sums
from covey.secure_sums.messages import RoundGivenUpError
from covey.settings.algorithm import ReplayOptions
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


def rounds_of(run: BuiltRun, count: int) -> Iterator[RoundResult]:
    state = run.algorithm.init(run.streams)
    for t in range(count):
        there = run.clients(run.population.clients, t)
        yield (played := run.algorithm.round(state, there, run.streams.at("round", t)))
        state = played.state


def in_each(counted: Mapping[str, tuple[int, int]]) -> list[frozenset[str]]:
    clusters = {j for j, _ in counted.values()}
    return [frozenset(h for h, (c, _) in counted.items() if c == j) for j in clusters]


@pytest.mark.parametrize(
    ("method", "rounds"), [({"num_clusters": 1}, 2), ({"initialisation": "groups"}, 1)]
)
def test_masks_change_no_bit(method: dict[str, object], rounds: int):
    plain, masked = (
        list(rounds_of(built(secure=each, **method), rounds)) for each in (False, True)
    )
    for one, other in zip(plain, masked, strict=True):
        assert model_hash(one.state.clusters) == model_hash(other.state.clusters)
        assert one.events == other.events
        assert one.state.kept(ClusterSums).sums == other.state.kept(ClusterSums).sums


def test_noise_on_the_sums_is_the_same_under_masks():
    def noisy(*, secure: bool) -> BuiltRun:
        given = {
            **SOLVED,
            "model": {**SOLVED["model"], "norm": 3.8},
            "method": {"name": "solved", "num_clusters": 1},
            "privacy": {"secure_sums": secure, "client_clip": 0.3, "client_noise": 0.05},
        }
        run = build_run(covey.Config.model_validate(given))
        return replace(run, streams=replace(run.streams, secret=7))

    (plain,), (masked,) = (list(rounds_of(noisy(secure=each), 1)) for each in (False, True))
    assert model_hash(plain.state.clusters) == model_hash(masked.state.clusters)
    assert plain.events == masked.events
    assert any(isinstance(each, SumPerturbed) for each in masked.events)
    assert is_known_fact(MovesWaited(("A",), 5))


def test_sums_are_of_who_is_counted_and_no_two_tell_of_few():
    run = built(num_clusters=3)
    assert run.records is not None
    by_handle = {client.handle: client.train for client in run.population.clients}
    released: list[frozenset[str]] = []
    waited, moved = 0, 0
    before: Mapping[str, int] = {}
    for played in rounds_of(run, 4):
        known = played.state.kept(ClusterSums)
        for j, sums in enumerate(known.sums):
            inside = [(by_handle[h], w) for h, (c, w) in known.counted.items() if c == j]
            assert sums == run.records.sums(inside, len(known.targets[0]))
        assert {h: j for h, (j, _) in known.counted.items()} == played.state.assignment
        released += in_each(known.counted)
        waited += sum(len(e.clients) for e in played.events if isinstance(e, MovesWaited))
        moved += sum(before.get(h, j) != j for h, j in played.state.assignment.items())
        before = played.state.assignment
    assert smallest_part(released) >= 3
    assert waited
    assert moved


def test_without_the_rule_two_rounds_single_clients_out():
    released: list[frozenset[str]] = []
    for played in rounds_of(built(secure=False, num_clusters=3), 4):
        released += in_each(played.state.kept(ClusterSums).counted)
    assert smallest_part(released) < 3


def test_recorded_rounds_are_played_again_alike():
    run = built(num_clusters=3)
    first = list(rounds_of(run, 3))
    again = run.for_replay(ReplayOptions(recorded=recorded_choices(first)))
    for one, other in zip(first, rounds_of(again, 3), strict=True):
        waited = [each for each in one.events if not isinstance(each, MovesWaited)]
        assert waited == [*other.events]  # the recorded choices have waited already
        assert model_hash(one.state.clusters) == model_hash(other.state.clusters)


def recorded_choices(played: list[RoundResult]) -> dict[int, Mapping[str, int]]:
    return {
        t: next(e.clusters for e in each.events if isinstance(e, ClientsAssigned))
        for t, each in enumerate(played)
    }


def test_who_left_is_in_no_sum_that_is_made_anew():
    run = built(num_clusters=1)
    (played,) = rounds_of(run, 1)
    gone = run.population.clients[0].handle
    state = played.state.without({gone})
    everybody = dict(state.kept(ClusterSums).counted)
    assert gone not in everybody
    after, counted, waited = with_waiting_moves(state, {}, 3)
    assert set(counted) == set(everybody)
    assert not waited
    assert set(after.kept(SumParts).parts) == set(everybody)
    assert not after.kept(ClusterSums).sums


def test_newcomers_wait_until_they_are_enough():
    run = built(num_clusters=1)
    state = run.algorithm.init(run.streams)
    after, counted, (waited,) = with_waiting_moves(state, {"A": 0, "B": 0}, 3)
    assert (counted, waited) == ({}, MovesWaited(("A", "B"), 3))
    _, counted, _ = with_waiting_moves(after, {"A": 0, "B": 0, "C": 0}, 3)
    assert counted == {"A": 0, "B": 0, "C": 0}


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
