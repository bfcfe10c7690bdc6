"""What choices leave behind: losses and prices."""

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from covey import Recipe, ReferenceEngine, SelectionInputs, ServerState, Streams, select_by_loss
from covey.algorithms.selection import (
    LatestLosses,
    Prices,
    Selection,
    SelectionConfig,
    SelectionResult,
    price_update,
    select_priced,
)
from covey.algorithms.simulated import Simulated
from covey.algorithms.state import Cohort, initial_state
from covey.base.events import ChoicesPerturbed, PricesSet
from covey.data.examples import Client

MODELS = tuple({"w": torch.tensor([float(j)])} for j in range(2))


def at_random(inputs: SelectionInputs) -> Tensor:
    draw = inputs.streams.at("mine").generator()
    choices = inputs.available.nonzero().flatten().numpy()
    return torch.from_numpy(draw.choice(choices, len(inputs.losses)))


def losses_are(*rounds: list[list[float]]) -> Callable[..., Tensor]:
    """Losses per round, by client in the cohort's order and by cluster."""
    left = list(rounds)

    def evaluate(_: object, cohort: Cohort, __: object) -> Tensor:
        return torch.tensor(left.pop(0), dtype=torch.float32).view(len(cohort), 2)

    return evaluate


def equal_losses(_: object, cohort: Cohort, __: object) -> Tensor:
    return torch.zeros(len(cohort), 2)


@pytest.fixture(scope="session")
def people(make_client: Callable[..., Client], digits) -> Cohort:
    return tuple(make_client(name, digits.take(torch.arange(2))) for name in "abcdef")


def measuring(evaluated: Callable[..., Tensor]) -> Simulated:
    """Clients whose losses are what a test says."""

    class Measuring(Simulated):
        def evaluate(self, models: object, cohort: Cohort, streams: object) -> Tensor:
            return evaluated(models, cohort, streams)

    return Measuring(ReferenceEngine(torch.nn.Linear(1, 1)), Recipe())


BOTH_ALIVE = initial_state(MODELS).with_choices({"X": 0, "Y": 1})
"""Two clients that never come back keep both clusters on offer."""


def through(
    how: SelectionConfig,
    cohorts: list[Cohort],
    evaluate: Callable[..., Tensor] = equal_losses,
    state: ServerState = BOTH_ALIVE,
) -> list[tuple[ServerState, SelectionResult]]:
    """Every round's state before, and the choice; nobody trains."""
    decide = partial(measuring(evaluate).choose, how)
    rounds: list[tuple[ServerState, SelectionResult]] = []
    for t, cohort in enumerate(cohorts):
        choice = decide(state, cohort, Streams(0).at("round", t))
        rounds.append((state, choice))
        state = choice.state.with_choices(choice.clusters).with_models(MODELS)
    return rounds


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_a_diverged_loss_is_not_remembered(people: Cohort, broken: float):
    rounds = through(
        SelectionConfig(select_by_loss),
        [people[:1]] * 3,
        losses_are([[1, 2]], [[broken, 2]], [[5, 2]]),
    )
    assert [choice.clusters["A"] for _, choice in rounds] == [0, 1, 1]
    assert rounds[1][1].state.kept(LatestLosses).losses == {}
    assert rounds[2][1].state.kept(LatestLosses).losses == {"A": (5.0, 2.0)}


def test_the_latest_losses_are_remembered(people: Cohort):
    first, second = people[:2]
    rounds = through(
        SelectionConfig(select_by_loss),
        [people[:2], people[:1]],
        losses_are([[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0]]),
    )
    assert rounds[-1][1].state.kept(LatestLosses).losses == {
        first.handle: (5.0, 6.0),
        second.handle: (3.0, 4.0),
    }


def priced(share: float) -> SelectionConfig:
    def select(inputs: SelectionInputs) -> Tensor:
        return select_priced(inputs, share)

    chosen: Selection = select
    return SelectionConfig(chosen, update_prices=price_update(share))


def test_a_price_rises_until_somebody_wants_to_stay(people: Cohort):
    # Nothing is known of the risks: the loss decides. To A's labels cluster 0 gives the
    # probability exp(-ln 4) = 1/4 and cluster 1 gives 1: A wants 0 from 3/4 on.
    away = [[9.0, 0.0]] * 5
    first = [[0.0, 9.0], *away]
    later = [[math.log(4), 0.0], *away]
    losses = losses_are(first, *[later] * 3)
    rounds = through(priced(1 / 3), [people] * 4, losses, initial_state(MODELS))
    facts = [fact for _, choice in rounds for fact in choice.events]
    assert facts == [rounds[t][1].events[0] for t in range(4)]
    assert all(isinstance(fact, PricesSet) for fact in facts)
    # round 0: newcomers get what they want: 1 of 6 wants cluster 0, 1/6 too few
    # rounds 1 and 2: nobody wants it at 1/6 nor at 1/2: + 1/3 each; round 3: A does
    prices = [fact.prices[0] for fact in facts if isinstance(fact, PricesSet)]
    assert prices == pytest.approx([1 / 6, 1 / 2, 5 / 6, 1], abs=1e-6)
    desired = [fact.desired[0] for fact in facts if isinstance(fact, PricesSet)]
    assert desired == pytest.approx([1 / 6, 0, 0, 1 / 6], abs=1e-6)
    # and meanwhile whoever sits there may not leave: nobody has come for it
    assert [choice.clusters["A"] for _, choice in rounds] == [0] * 4


def test_an_empty_cohort_sets_no_prices(people: Cohort):
    rounds = through(priced(1 / 3), [people, ()], losses_are([[0.0, 1.0]] * 6, []))
    assert rounds[1][1].events == ()
    assert rounds[1][1].state.states == rounds[1][0].states


def test_a_cluster_that_is_gone_has_no_price(people: Cohort):
    state = initial_state(MODELS).with_choices({"A": 1, "B": 1})
    choice = partial(measuring(equal_losses).choose, priced(1 / 2))(state, people[:2], Streams(0))
    assert choice.state.kept(Prices).prices == (0.0, 0.0)


def test_choices_under_noise_are_told_with_their_epsilon(people: Cohort):
    how = SelectionConfig(select_by_loss, epsilon=0.5)
    played = through(how, [people, people[:2], ()])
    told = [choice.events for _, choice in played]
    everybody, two = (tuple(c.handle for c in some) for some in (people, people[:2]))
    assert told == [(ChoicesPerturbed(0.5, everybody),), (ChoicesPerturbed(0.5, two),), ()]
    assert [choice.events for _, choice in through(SelectionConfig(select_by_loss), [people])] == [
        ()
    ]


def test_every_client_has_draws_of_its_own(people: Cohort):
    seen: dict[str, set[int]] = {}

    def looks(inputs: SelectionInputs) -> Tensor:
        assert len(inputs.client_streams) == len(inputs.losses)
        for client, own in zip(cohort, inputs.client_streams, strict=True):
            draw = int(own.generator().integers(2**62))
            seen.setdefault(client.name, set()).add(draw)
        return select_by_loss(inputs)

    decide = partial(measuring(equal_losses).choose, SelectionConfig(looks))
    for cohort in (people, people[2:], people[::-1]):
        decide(BOTH_ALIVE, cohort, Streams(0).at("round", 0))
    assert all(len(draws) == 1 for draws in seen.values())
    assert len(set.union(*seen.values())) == len(people)
