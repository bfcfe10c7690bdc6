"""The controls: memory must be found, and nothing must be found where there is none."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from covey import Examples, Params, Recipe, ReferenceEngine, RiskEstimate, Streams
from covey.membership.controls import negative_control, positive_control
from covey.models.build import initial_params

LONG = Recipe(local_epochs=60, batch_size=10, learning_rate=0.1, momentum=0.9)


@pytest.fixture(scope="module")
def small() -> tuple[ReferenceEngine, Params]:
    with Streams(0).at("architecture").lent_to_torch():
        module = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    return ReferenceEngine(module), initial_params(module)


def positive(
    small: tuple[ReferenceEngine, Params], digits: Examples, recipe: Recipe
) -> RiskEstimate:
    some = digits.take(torch.arange(200))
    return positive_control(small[0], small[1], recipe, some, Streams(0))


def test_random_labels_learnt_by_heart_are_found(
    small: tuple[ReferenceEngine, Params], digits: Examples
):
    assert positive(small, digits, LONG).risk > 0.7


def test_an_untrained_model_remembers_nothing(
    small: tuple[ReferenceEngine, Params], digits: Examples
):
    idle = positive(small, digits, replace(LONG, learning_rate=1e-9))
    assert abs(idle.risk - 0.5) < 3 * idle.standard_error


def test_two_halves_of_unseen_data_score_a_coin_toss(
    small: tuple[ReferenceEngine, Params], digits: Examples
):
    # Beyond 3 SE with probability 0.003, for each of five splits.
    for index in range(5):
        streams = Streams(0).at(index)
        found = negative_control(*small, digits.take(torch.arange(600)), streams)
        assert abs(found.risk - 0.5) < 3 * found.standard_error
        assert (found.members, found.non_members) == (300, 300)
