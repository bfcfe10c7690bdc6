"""Ridge heads under masks: the same sums, and no two of them single anybody out."""

from typing import Any

import pytest
import torch

import covey
from algorithms.playing import rounds_of
from covey import ConfigError, ModelError
from covey.algorithms.ridge import recount
from covey.base.events import ClientsWaited
from covey.base.params import model_hash
from covey.ridge.head import ClusterSums
from covey.ridge.sums import SumCohorts, Sums, masked_sums
from covey.secure_sums.messages import RoundGivenUpError
from covey.settings.run import build_run

RIDGE: dict[str, Any] = {
    "rounds": 4,
    "model": {"name": "linear-head", "features": {"filters": 4, "size": 3, "pool": 2}},
    "method": {"name": "ridge", "num_clusters": 1},
    "risk": {"name": "none"},
    "population": {"clients": 24, "examples_per_client": 20, "minority_share": 0.25},
}


def test_masks_change_no_bit():
    settings = ({**RIDGE, "privacy": {"secure_sums": masked}} for masked in (False, True))
    runs = (build_run(covey.Config.model_validate(setting)) for setting in settings)
    plain, masked = ([*rounds_of(run, 2)] for run in runs)
    for one, other in zip(plain, masked, strict=True):
        assert model_hash(one.state.clusters) == model_hash(other.state.clusters)
        assert one.events == other.events
        assert one.state.get_state(ClusterSums).sums == other.state.get_state(ClusterSums).sums


def test_newcomers_wait_until_they_are_enough_and_who_left_is_in_no_sum_that_is_made_anew():
    run = build_run(
        covey.Config.model_validate(RIDGE | {"privacy": {"secure_sums": True, "min_cohort": 3}})
    )
    first, second, *_, last = names = [client.handle for client in run.population.clients]
    start, clients = run.algorithm.init(run.streams), run.no_clients
    after, counted, (waited,) = recount(start, {first: 0, second: 0}, clients)
    assert (counted, waited) == ({}, ClientsWaited(tuple(sorted((first, second))), 3))
    assert not after.get_state(ClusterSums).counted
    together = dict.fromkeys(names[:3], 0)
    after, counted, events = recount(after, together, clients)
    assert (counted, events) == (together, ())
    after, counted, (waited,) = recount(after, {**together, last: 0}, clients)
    assert (counted, waited) == (together, ClientsWaited((last,), 3))
    (played,) = rounds_of(run, 1)
    gone, *others = names
    after, _, events = recount(played.state.without({gone}), {}, clients)
    known = after.get_state(ClusterSums)
    assert set(known.counted) == set(after.get_state(SumCohorts).cohorts) == set(others)
    assert not events
    assert run.records is not None
    examples = [c.train for c in run.population.clients if c.handle != gone]
    assert known.sums == (run.records.sums(examples, len(known.sums[0].targets)),)


def test_who_was_summed_together_is_summed_together_again_or_not_at_all():
    known = SumCohorts().with_groups(map(frozenset, ("ABCD", "EFG")))
    assert known.groups("ABCDEFG", 3) == (frozenset("ABCD"), frozenset("EFG"))
    assert known.groups("ABCEFG", 3) == (frozenset("EFG"),)
    assert known.groups("HI", 3) == ()
    assert known.groups("ABHIJ", 3) == (frozenset("HIJ"),)
    assert known.with_groups((frozenset("HI"),)).groups("HI", 3) == ()


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
    ("changed", "reason"),
    [
        ({"method": {"name": "ifca"}}, "method.name = 'ifca'"),
        ({"method": {"name": "ridge"}}, "num_clusters = 2"),
        ({"aggregation": {"name": "krum"}}, "aggregation.name = 'krum'"),
    ],
)
def test_what_cannot_be_had_under_masks_is_refused(changed, reason):
    settings = {"privacy": {"secure_sums": True}} | changed
    with pytest.raises(ConfigError) as error:
        build_run(covey.Config.model_validate({**RIDGE, **settings}))
    assert reason in str(error.value)
    assert "privacy.secure_sums = True" in str(error.value)
