"""Rounds whose updates pass by, FedEraser's among them, and how much is read of one."""

import math
from dataclasses import replace
from functools import partial
from typing import TypeVar

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from aggregation.hiding import hiding, sound
from algorithms.playing import fedavg
from covey import Aggregation, ClusterMeans, ConfigError, Params, Streams
from covey.aggregation.anonymity import HidingRound, noise_scale
from covey.aggregation.base import FederationInfo
from covey.algorithms.own_steps import checked_aggregation
from covey.algorithms.round import RoundSteps
from covey.algorithms.simulated import Simulated, rescale_to_norm
from covey.base.events import AnonymitySetsFormed, AnswerRefused, DistancesSketched, ModelsMerged
from covey.base.params import flatten, trained
from support.aggregating import means

STREAMS = Streams(0)
E = TypeVar("E")
CONFIGS = {"paper": hiding(2, noise_scale("paper", "l2", 0.1)), "sound": sound(2, 1.0, 0.5)}


@pytest.mark.parametrize("name", CONFIGS)
def test_rounds_of_a_simulation_are_the_same_to_the_bit(steps, point, name):
    cohort = (*(point(f"c{i}", float(i), i % 2) for i in range(9)), point("d", math.nan, 0))

    def played(window: float, *, repeatable: bool):
        window = window if repeatable else math.inf
        merge = partial(HidingRound, hiding=replace(CONFIGS[name], window=window))
        accounted = name == "sound"
        run = fedavg(draw, replace(steps, steps=RoundSteps(merge, dp_accounted=accounted)))
        return run.play_round(run.init(STREAMS), cohort, STREAMS)

    held = played(0.0, repeatable=False)
    streamed = played(0.0, repeatable=True)
    assert played(math.inf, repeatable=True).events == held.events
    for kind in (ModelsMerged, AnswerRefused):
        assert of_kind(kind, held) == of_kind(kind, streamed)
    assert len(of_kind(AnswerRefused, streamed)) == 1
    sets = [event.sets for event in of_kind(AnonymitySetsFormed, streamed)]
    assert sets == [event.sets for event in of_kind(AnonymitySetsFormed, held)]
    assert not of_kind(DistancesSketched, held)
    assert of_kind(DistancesSketched, streamed)


def draw(_: Streams) -> Params:
    return {"w": torch.tensor([0.5])}


def of_kind(kind: type[E], played) -> list[E]:
    return [event for event in played.events if isinstance(event, kind)]


class Twice(Aggregation):
    """A user's own that takes every update twice."""

    def begin(self, models, streams, federation):
        return TwiceInARound(models)


class TwiceInARound(ClusterMeans):
    def result(self):
        seen, self.again = getattr(self, "again", ()), ("A", "B")
        return super().result() if seen else replace(super().result(), again=self.again)


def test_a_users_own_aggregation_takes_updates_twice_where_clients_are_simulated(steps, point):
    cohort = tuple(point(name, 1.0, y) for y, name in enumerate("ab"))

    def played(begin):
        run = fedavg(draw, replace(steps, steps=RoundSteps(begin)))
        return run.play_round(run.init(STREAMS), cohort, STREAMS)

    here, distinct = (FederationInfo(clients=2, repeats=repeats) for repeats in (True, False))
    twice = played(checked_aggregation(Twice(), here))
    assert twice.events == played(means).events
    with pytest.raises(ConfigError, match="must get by with each update once, or twice"):
        played(checked_aggregation(Twice(), distinct))


class Never(Aggregation):
    """A user's own that asks for an update without end, or for one that it was never passed."""

    handle: str = "A"

    def begin(self, models, streams, federation):
        return NeverInARound(models, self.handle)


class NeverInARound(ClusterMeans):
    def __init__(self, models, handle):
        super().__init__(models)
        self.handle = handle

    def result(self):
        return replace(super().result(), again=(self.handle,))


@pytest.mark.parametrize("handle", ["A", "Z"])
def test_a_users_own_aggregation_that_never_has_enough_is_named(steps, point, handle):
    begin = checked_aggregation(Never(handle=handle), FederationInfo(clients=1, repeats=True))
    run = fedavg(draw, replace(steps, steps=RoundSteps(begin)))
    with pytest.raises(ConfigError, match=r"Your aggregation .*Never must get by with"):
        run.play_round(run.init(STREAMS), (point("a", 1.0, 0),), STREAMS)


coordinates = st.lists(st.floats(-100, 100, width=32), min_size=2, max_size=2)


def of(*values: float) -> Params:
    return {"w": torch.tensor(values)}


def length(update: Params) -> float:
    return float(flatten(trained(update)).norm())


@given(coordinates, coordinates)
def test_the_length_is_the_old_one_and_the_direction_the_new_one(now, old):
    update = rescale_to_norm(of(*now), of(*old))
    if length(of(*now)) < 1e-3:  # no direction to speak of
        return
    assert length(update) == pytest.approx(length(of(*old)), rel=1e-4, abs=1e-6)
    along = float(update["w"] @ of(*now)["w"])
    assert along == pytest.approx(length(of(*old)) * length(of(*now)), rel=1e-3, abs=1e-4)


def test_who_found_nothing_then_or_now_sends_nothing():
    nothing, something = of(0.0, 0.0), of(1.0, 1.0)
    for pair in ((nothing, something), (something, nothing)):
        assert rescale_to_norm(*pair)["w"].tolist() == [0.0, 0.0]


def test_statistics_are_no_part_of_a_length_and_counters_stay():
    def model(weight: float, statistic: float) -> Params:
        return {
            "weight": torch.tensor([weight]),
            "running_mean": torch.tensor([statistic]),
            "num_batches_tracked": torch.tensor(4),
        }

    update = rescale_to_norm(model(2.0, 100.0), model(6.0, 7.0))
    assert float(update["weight"]) == pytest.approx(6.0)
    assert float(update["running_mean"]) == pytest.approx(300.0)  # scaled alike
    assert int(update["num_batches_tracked"]) == 4


def test_a_real_step_is_calibrated(steps, point, make_client):
    # A's step from w = 1 is 0.268941 (see test_by_hand); its old one was -0.5 long
    cohort = (point("a", 1, 1), point("b", 1, 0))
    stored = {"A": {"w": torch.tensor([-0.5])}}
    assert isinstance(steps.federation, Simulated)
    federation = replace(steps.federation, stored=stored)
    models = ({"w": torch.tensor([1.0])},)
    one, other = federation.train(models, cohort, {"A": 0, "B": 0}, STREAMS)
    assert float(one.update["w"]) == pytest.approx(0.5)
    assert float(other.update["w"]) == pytest.approx(-0.731059, abs=1e-6)
