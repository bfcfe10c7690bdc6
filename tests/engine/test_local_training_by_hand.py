"""The parts of local training, redone on paper; what they remember; what is refused."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from covey import (
    Adam,
    AdamW,
    ConfigError,
    Cosine,
    CrossEntropy,
    Engine,
    Examples,
    Loss,
    Objective,
    Proximal,
    Recipe,
    ScoringJob,
    Sgd,
    TrainingJob,
)
from covey.engine.optimizers import TorchOptimizer
from covey.engine.recipe import OwnObjective
from covey.engine.vmap import VmapEngine
from engine.jobs import point_job

MakeEngine = Callable[[nn.Module], Engine]


def first_weight(engine: Engine, job: TrainingJob) -> float:
    """The two weights of `point_job` are each other's opposite."""
    (trained,) = engine.train([job])
    weight = trained["weight"][:, 0]
    assert float(weight.sum()) == pytest.approx(0, abs=1e-6)
    return float(weight[0])


@pytest.mark.parametrize(
    ("recipe", "weight"),
    [
        # step 1: p = (1/2, 1/2), g = -1/2, w = 0.05; step 2: p_0 = 1 / (1 + e^-0.1) = 0.524979,
        # v = 0.9 * -0.5 - 0.475021 = -0.925021, w = 0.05 + 0.0925021
        (Recipe(optimizer=Sgd(momentum=0.9)), 0.1425021),
        # step 1: g + 0.9 g = -0.95, w = 0.095; step 2: p - 1 = -0.452643,
        # v = 0.9 * -0.5 - 0.452643 = -0.902643, g + 0.9 v = -1.265021
        (Recipe(optimizer=Sgd(momentum=0.9, nesterov=True)), 0.2215021),
        # step 2: g + 0.5 w = -0.475021 + 0.025
        (Recipe(optimizer=Sgd(weight_decay=0.5)), 0.0950021),
        # step 2: g + 1 (w - 0) = -0.475021 + 0.05
        (Recipe(objective=Proximal(mu=1.0)), 0.0925021),
        # the two gradients have norm 1/sqrt(2), then more than 0.5: 0.5/sqrt(2) each
        (Recipe(max_gradient_norm=0.5), 2 * 0.1 * 0.5 / math.sqrt(2)),
        # m/(1 - b1) = g and sqrt(v/(1 - b2)) = |g|: a step of the rate; then
        # m = (0.09 * -0.5 + 0.1 g2) / 0.19, v = (0.000999 / 4 + 0.001 g2^2) / 0.001999,
        # of g2 = p - 1 at w = 0.1: -0.450166
        (Recipe(optimizer=Adam()), 0.1 + 0.1 * 0.473772 / 0.475728),
        # as there, but step 2 begins with w (1 - 0.1 * 0.5) = 0.095
        (Recipe(optimizer=AdamW(weight_decay=0.5)), 0.095 + 0.1 * 0.473772 / 0.475728),
    ],
    ids=["momentum", "nesterov", "decay", "proximal", "clipped", "adam", "adamw"],
)
def test_two_steps_by_hand(make_engine: MakeEngine, recipe: Recipe, weight: float):
    engine = make_engine(nn.Linear(1, 2, bias=False))
    job = point_job(replace(recipe, local_epochs=2, learning_rate=0.1))
    assert first_weight(engine, job) == pytest.approx(weight, abs=2e-5)


def test_scores_by_hand(make_engine: MakeEngine):
    # weight (ln 3, 0). x = 1: p = (3/4, 1/4). x = 0: p = (1/2, 1/2).
    params = {"weight": torch.tensor([[math.log(3)], [0.0]])}
    examples = Examples(torch.tensor([[1.0], [1.0], [0.0]]), torch.tensor([0, 1, 1]))
    engine = make_engine(nn.Linear(1, 2, bias=False))
    (scored,) = engine.score([ScoringJob(params, examples)])
    expected = torch.tensor([math.log(4 / 3), math.log(4), math.log(2)])
    torch.testing.assert_close(scored.losses, expected)
    assert scored.predictions.tolist() == [0, 0, 0]


def test_losses_by_hand():
    outputs, labels = torch.tensor([[math.log(3), 0.0]]), torch.tensor([0])  # p = 3/4
    smooth = -(0.9 * math.log(3 / 4) + 0.1 * math.log(1 / 4))
    found = CrossEntropy(label_smoothing=0.2).losses(outputs, labels)
    torch.testing.assert_close(found, torch.tensor([smooth]))


def test_the_cosine_schedule_by_hand():
    recipe = Recipe(learning_rate=0.4, schedule=Cosine(final=0.5))
    found = [recipe.at(t, 4) for t in range(4)]
    rates = [0.4, 0.2 + 0.2 * 0.853553, 0.3, 0.2 + 0.2 * 0.146447]
    assert [each.learning_rate for each in found] == pytest.approx(rates)
    assert found[3].at(0, 4) is found[3]  # the rate of a round stays


class Remembering(Objective):
    elementwise = True

    def correction(self, weights, start, memory):
        return [w - p for w, p in zip(weights, memory["past"], strict=True)]


def test_what_a_client_remembers_is_its_own(make_engine: MakeEngine):
    # g = (-1/2, 1/2), and w - p = -1 for both where 1 is remembered
    engine = make_engine(nn.Linear(1, 2, bias=False))
    job = point_job(Recipe(learning_rate=0.1, objective=Remembering()))
    memories = ({"weight": torch.ones(2, 1)}, {"weight": torch.zeros(2, 1)})
    moved, still = engine.train(replace(job, memory={"past": each}) for each in memories)
    torch.testing.assert_close(moved["weight"], torch.tensor([[0.15], [0.05]]))
    torch.testing.assert_close(still["weight"], torch.tensor([[0.05], [-0.05]]))


class Mean(Loss):
    def losses(self, outputs: Tensor, labels: Tensor) -> Tensor:
        return (outputs[:, 0] - labels).mean()


class Broken(Loss):
    def losses(self, outputs: Tensor, labels: Tensor) -> Tensor:
        return outputs[:, 7]


def test_a_part_that_does_not_fit_is_told_by_its_name(make_engine: MakeEngine):
    def short(
        weights: Sequence[Tensor], start: Sequence[Tensor], memory: Mapping[str, object]
    ) -> list[Tensor]:
        return []

    engine = make_engine(nn.Linear(1, 2, bias=False))
    job = point_job(Recipe(), count=3)
    for recipe, said in (
        (Recipe(loss=Mean()), "Mean must return a number per example"),
        (Recipe(loss=Broken()), "Broken raised IndexError"),
        (Recipe(loss=Loss()), r"Loss raised NotImplementedError: write losses\(outputs, labels\)"),
    ):
        with pytest.raises(ConfigError, match=said):
            list(engine.train([replace(job, recipe=recipe)]))
    if not isinstance(engine, VmapEngine):
        own = Recipe(objective=OwnObjective(function=short))
        with pytest.raises(ConfigError, match="tensors in the weights' shapes"):
            list(engine.train([replace(job, recipe=own)]))


class Alone(Objective):
    def correction(self, weights, start, memory):
        return None


@pytest.mark.parametrize(
    ("recipe", "said"),
    [
        (
            Recipe(optimizer=TorchOptimizer(function=torch.optim.Adafactor)),
            "The recipe's optimizer needs every client to be trained by itself",
        ),
        (Recipe(objective=Alone()), "The recipe's objective needs every client"),
        (Recipe(record_clip=1.0), "record_clip needs every client"),
    ],
)
def test_the_vmap_engine_says_what_it_cannot_do(recipe: Recipe, said: str):
    engine = VmapEngine(nn.Linear(1, 2, bias=False))
    with pytest.raises(ConfigError, match=f"{said}.*use the parallel engine"):
        list(engine.train([point_job(recipe)]))
