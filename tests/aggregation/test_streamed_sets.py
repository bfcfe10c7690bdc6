"""Sets of updates that pass by one by one: those of updates that are held."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from aggregation.hiding import hidden_by, hiding, sound
from covey import AggregationResult, ClientUpdate, Params, Streams
from covey.aggregation.anonymity import Hiding, HidingRound, noise_scale
from covey.aggregation.partition import sketch_error
from covey.base.events import AnonymitySetsFormed, DistancesSketched
from covey.base.params import model_hash

seeds = st.integers(0, 2**32 - 1)
STREAMS = Streams(0).at("round", 2, "merge")
QUARTER = noise_scale("paper", "l2", 0.25)
SETS = hiding(3, QUARTER)


def drawn(seed: int) -> Params:
    draws = torch.Generator().manual_seed(seed)
    return {
        "a.weight": torch.randn(4, 5, generator=draws),
        "a.bias": torch.randn(5, generator=draws),
    }


def updates_of(n: int, seed: int) -> list[ClientUpdate]:
    return [
        ClientUpdate(f"h-{i * 7 % 23:02d}-{i:02d}", i % 2, drawn(seed + i), 1.0 + i)
        for i in range(n)
    ]


def merged(config: Hiding, updates: Sequence[ClientUpdate]):
    """Return what comes of updates that are held, and of the same as they pass by."""
    models = (drawn(10**6), drawn(10**6 + 1))
    streamed = replace(config, window=0.0)
    held, found = (hidden_by(each)(models, updates, STREAMS) for each in (config, streamed))
    asked = HidingRound(models, STREAMS, hiding=streamed)
    for each in updates:
        asked.add(each)
    return held, found, asked.result().again


def formed(found: AggregationResult) -> list[AnonymitySetsFormed]:
    return [each for each in found.events if isinstance(each, AnonymitySetsFormed)]


CONFIGS = {
    "mdav": SETS,
    "cosine": hiding(3, QUARTER, distance="cosine"),
    "near": hiding(3, QUARTER, max_distance=7.0),
    "kmeans": hiding(3, QUARTER, partition="kmeans"),
    "sound": sound(3, 1.0, 0.5),
}


@pytest.mark.parametrize("name", CONFIGS)
@given(st.integers(0, 30), seeds)
def test_a_stream_gives_the_same_models_and_sets_to_the_bit(name, n, seed):
    # 25 coordinates are fewer than a sketch has numbers: it changes no distance
    held, found, again = merged(CONFIGS[name], updates_of(n, seed % 10**6))
    assert model_hash(held.clusters) == model_hash(found.clusters)
    assert [e.sets for e in formed(held)] == [e.sets for e in formed(found)]
    assert [e.near for e in formed(held)] == [e.near for e in formed(found)]
    assert len(again) == sum(len(e.sets) for e in formed(found))


@pytest.mark.parametrize(
    "settings",
    [{"distance": "cosine", "max_distance": 0.5}, {"max_distance": 7.0, "limit_sets": True}],
)
@given(st.integers(3, 30), seeds)
def test_angles_and_diameters_that_are_limited_are_never_estimated(settings, n, seed):
    limited = hiding(3, QUARTER, **settings)
    held, found, again = merged(limited, updates_of(n, seed % 10**6))
    assert model_hash(held.clusters) == model_hash(found.clusters)
    assert held.events == found.events
    assert again == ()


def passing(config: Hiding, *updates: Tensor, secret: int | None = None) -> AggregationResult:
    sent = [ClientUpdate(f"h-{i}", 0, {"w": each}, 1.0) for i, each in enumerate(updates)]
    start = ({"w": torch.zeros(2**13)},)
    passing_by = hidden_by(replace(config, window=0.0))
    return passing_by(start, sent, replace(STREAMS, secret=secret))


@pytest.mark.parametrize(("share", "near"), [(0.95, False), (0.5, True)])
def test_who_may_be_too_far_is_near_nobody(share, near):
    """Estimates of distances below the largest that counts are right on average only."""
    apart = torch.zeros(2, 2**13)
    apart[1, 0] = share  # and so is its estimate: one coordinate meets no other
    (event,) = formed(passing(hiding(2, QUARTER, max_distance=1.0), *apart))
    assert event.near == ((("h-1",), ("h-0",)) if near else ((), ()),)


def test_sketches_are_drawn_where_nobody_knows_them_before():
    wide = torch.randn(2, 2**13, generator=torch.Generator().manual_seed(0))
    one, other = (
        [e.diameters for e in found.events if isinstance(e, DistancesSketched)]
        for found in (passing(hiding(2, QUARTER), *wide, secret=secret) for secret in (1, 2))
    )
    assert one != other


def test_what_is_estimated_is_told_as_an_estimate():
    held, found, _ = merged(SETS, updates_of(12, 0))
    told = [each for each in found.events if isinstance(each, DistancesSketched)]
    assert [e.cluster for e in told] == [0, 1]
    for exact, without, estimates in zip(formed(held), formed(found), told, strict=True):
        assert set(without.diameters) == {None}
        assert estimates.diameters == pytest.approx(exact.diameters, rel=1e-5)
        assert estimates.standard_error == sketch_error(estimates.numbers)
    sound = merged(CONFIGS["sound"], updates_of(12, 0))[1]
    (one, other) = (e for e in sound.events if isinstance(e, DistancesSketched))
    assert {*one.diameters, *other.diameters} == {None}
