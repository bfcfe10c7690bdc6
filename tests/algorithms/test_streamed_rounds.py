"""A round whose updates pass by: clients train once more for those that speak."""

import math
from dataclasses import replace
from functools import partial
from typing import TypeVar

import pytest
import torch

from aggregation.hiding import hiding, sound
from algorithms.playing import fedavg
from covey import Aggregation, ClusterMeans, ConfigError, Params, Streams
from covey.aggregation.anonymity import HidingRound, noise_scale
from covey.aggregation.base import FederationInfo
from covey.algorithms.own_steps import checked_aggregation
from covey.algorithms.round import RoundSteps
from covey.base.events import AnonymitySetsFormed, AnswerRefused, DistancesSketched, ModelsMerged
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
    sets = [each.sets for each in of_kind(AnonymitySetsFormed, streamed)]
    assert sets == [each.sets for each in of_kind(AnonymitySetsFormed, held)]
    assert not of_kind(DistancesSketched, held)
    assert of_kind(DistancesSketched, streamed)


def draw(_: Streams) -> Params:
    return {"w": torch.tensor([0.5])}


def of_kind(kind: type[E], played) -> list[E]:
    return [each for each in played.events if isinstance(each, kind)]


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

    here, apart = (FederationInfo(clients=2, repeats=repeats) for repeats in (True, False))
    twice = played(checked_aggregation(Twice(), here))
    assert twice.events == played(means).events
    with pytest.raises(ConfigError, match="must get by with each update once, or twice"):
        played(checked_aggregation(Twice(), apart))


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
