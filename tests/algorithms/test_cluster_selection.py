"""What choices leave behind: prices, and a record of their noise."""

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from covey import Recipe, ReferenceEngine, ServerState, Streams, select_by_loss
from covey.algorithms.selection import SelectionConfig, SelectionResult
from covey.algorithms.simulated import Simulated
from covey.algorithms.state import Cohort, initial_state
from covey.base.events import ChoicesPerturbed, PricesSet
from covey_papers.selection import Priced, select_priced

MODELS = tuple({"w": torch.tensor([float(j)])} for j in range(2))


def losses_are(*rounds: list[list[float]]) -> Callable[..., Tensor]:
    """Losses per round, by client in the cohort's order and by cluster."""
    left = list(rounds)

    def evaluate(_: object, cohort: Cohort, __: object) -> Tensor:
        return torch.tensor(left.pop(0), dtype=torch.float32).view(len(cohort), 2)

    return evaluate


@pytest.fixture(scope="session")
def people(make_client, digits) -> Cohort:
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
    evaluate: Callable[..., Tensor] = lambda _, cohort, __: torch.zeros(len(cohort), 2),
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


def test_a_price_rises_until_somebody_wants_to_stay(people):
    # Nothing is known of the risks: the loss decides. To A's labels cluster 0 gives the
    # probability exp(-ln 4) = 1/4 and cluster 1 gives 1: A wants 0 from 3/4 on.
    away = [[9.0, 0.0]] * 5
    losses = losses_are([[0.0, 9.0], *away], *[[[math.log(4), 0.0], *away]] * 3)
    priced = SelectionConfig(
        lambda inputs: select_priced(inputs, 1 / 3),
        after_choice=Priced(target_share=1 / 3).after_choice,
    )
    rounds = through(priced, [people] * 4, losses, initial_state(MODELS))
    facts = [fact for _, choice in rounds for fact in choice.events]
    assert [type(fact) for fact in facts] == [PricesSet] * 4
    # round 0: newcomers get what they want: 1 of 6 wants cluster 0, 1/6 too few
    # rounds 1 and 2: nobody wants it at 1/6 nor at 1/2: + 1/3 each; round 3: A does
    told = [(f.prices[0], f.desired[0]) for f in facts if isinstance(f, PricesSet)]
    expected = [1 / 6, 1 / 6, 1 / 2, 0, 5 / 6, 0, 1, 1 / 6]
    assert [each for pair in told for each in pair] == pytest.approx(expected, abs=1e-6)
    # and meanwhile whoever sits there may not leave: nobody has come for it
    assert [choice.clusters["A"] for _, choice in rounds] == [0] * 4


def test_choices_under_noise_are_told_with_their_epsilon(people):
    noisy = SelectionConfig(select_by_loss, epsilon=0.5)
    told = [choice.events for _, choice in through(noisy, [people, people[:2], ()])]
    everybody, two = (ChoicesPerturbed(0.5, tuple("ABCDEF"[:n])) for n in (6, 2))
    assert told == [(everybody,), (two,), ()]
    ((_, plain),) = through(SelectionConfig(select_by_loss), [people])
    assert plain.events == ()
