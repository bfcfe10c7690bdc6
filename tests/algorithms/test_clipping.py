"""The last choice of a run is told like any other."""

from collections.abc import Callable

import pytest

from algorithms.playing import Playing, ifca_mir
from covey import Params, RoundResult, Streams, select_by_loss
from covey.algorithms.selection import SelectionConfig, price_update
from covey.base.events import ChoicesPerturbed, ClientsAssigned, PricesSet
from covey.data.examples import Client

Point = Callable[..., Client]
Models = Callable[..., Callable[[Streams], Params]]
STREAMS = Streams(0)


@pytest.fixture
def cohort(point: Point) -> tuple[Client, ...]:
    return (*(point(name, 1, 1) for name in "abc"), *(point(name, 1, 0) for name in "xyz"))


def rounds(strategy: Playing, cohort: tuple[Client, ...], count: int) -> list[RoundResult]:
    state, played = strategy.init(STREAMS), []
    for t in range(count):
        played.append(strategy.play_round(state, cohort, STREAMS.at("round", t)))
        state = played[-1].state
    return played


def test_the_last_choice_is_told_like_any_other_and_sets_no_price(steps, models, cohort):
    how = SelectionConfig(select_by_loss, update_prices=price_update(0.3), epsilon=2.0)
    strategy = ifca_mir(models(1.0, -1.0), steps, how)
    (first,) = rounds(strategy, cohort, 1)
    last = strategy.conclude(first.state, cohort, STREAMS.at("round", 1))
    chose = ChoicesPerturbed(2.0, tuple(client.handle for client in cohort))
    assert chose in first.events
    assert any(isinstance(each, PricesSet) for each in first.events)
    assert last.events == (chose, ClientsAssigned(last.state.assignment, "final"))
