"""Clips that follow the updates, carried by the server from round to round."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise

import pytest

from algorithms.playing import Playing, ifca, ifca_mir
from covey.aggregation import Clipping, noised_mean
from covey.algorithms import (
    Clips,
    RoundResult,
    SelectionConfig,
    Steps,
    WarmStart,
    price_update,
    warm_started,
)
from covey.clustering import select_by_loss
from covey.data.examples import Client
from covey.events import ChoicesPerturbed, ClientsAssigned, PricesSet, SumPerturbed
from covey.rng import Streams
from covey.types import Params

Point = Callable[..., Client]
Models = Callable[..., Callable[[Streams], Params]]
STREAMS = Streams(0)
HOW = Clipping(0.5, 1.0, adaptive=True)


@pytest.fixture
def adaptive(steps: Steps) -> Steps:
    clipping = partial(noised_mean, HOW)
    return replace(steps, aggregate=clipping(), clipping=clipping)


@pytest.fixture
def cohort(point: Point) -> tuple[Client, ...]:
    return (
        *(point(name, 1, 1) for name in "abc"),
        *(point(name, 1, 0) for name in "xyz"),
    )


def rounds(
    strategy: Playing, cohort: tuple[Client, ...], count: int
) -> list[RoundResult]:
    state, played = strategy.init(STREAMS), []
    for t in range(count):
        played.append(strategy.play_round(state, cohort, STREAMS.at("round", t)))
        state = played[-1].state
    return played


def used(played: RoundResult) -> dict[int, float]:
    return {e.cluster: e.clip for e in played.events if isinstance(e, SumPerturbed)}


def test_a_round_clips_at_what_the_round_before_found(adaptive, models, cohort):
    played = rounds(ifca(models(1.0, -1.0), adaptive), cohort, 4)
    assert used(played[0]) == {0: 0.5, 1: 0.5}
    for before, after in pairwise(played):
        clips = before.state.kept(Clips).norms
        assert len(clips) == 2
        assert used(after) == {j: clips[j] for j in used(after)}
        for j in {0, 1} - used(after).keys():
            assert after.state.kept(Clips).norms[j] == clips[j]
    assert len({each.state.kept(Clips).norms for each in played}) == 4


def test_a_fixed_clip_leaves_nothing_behind(steps, models, cohort):
    fixed = replace(steps, aggregate=noised_mean(Clipping(0.5, 1.0)))
    played = rounds(ifca(models(1.0, -1.0), fixed), cohort, 3)
    assert {each.state.kept(Clips).norms for each in played} == {()}
    assert {clip for each in played for clip in used(each).values()} == {0.5}


def test_a_warm_start_hands_its_clip_to_every_cluster(adaptive, models, cohort):
    strategy = ifca(models(1.0), adaptive, alike=True)
    warm = WarmStart(shared_rounds=2, kept_rounds=1)
    first, second, split = rounds(strategy.wrapped(warm_started, warm), cohort, 3)
    assert used(first) == {0: 0.5}
    assert used(second) == {0: first.state.kept(Clips).norms[0]}
    for each in (first, second):
        assert len(each.state.kept(Clips).norms) == 2
        assert len(set(each.state.kept(Clips).norms)) == 1
    assert set(used(split).values()) == {second.state.kept(Clips).norms[0]}


def test_the_last_choice_is_told_like_any_other_and_sets_no_price(
    steps, models, cohort
):
    how = SelectionConfig(select_by_loss, update_prices=price_update(0.3), epsilon=2.0)
    strategy = ifca_mir(models(1.0, -1.0), steps, how)
    (first,) = rounds(strategy, cohort, 1)
    last = strategy.conclude(first.state, cohort, STREAMS.at("round", 1))
    chose = ChoicesPerturbed(2.0, tuple(client.handle for client in cohort))
    assert chose in first.events
    assert any(isinstance(each, PricesSet) for each in first.events)
    assert last.events == (chose, ClientsAssigned(last.state.assignment, "final"))
