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
    Focal,
    Huber,
    Loss,
    Objective,
    Proximal,
    Recipe,
    Schedule,
    Sgd,
    Stepwise,
    TrainingJob,
    WarmUp,
)
from covey.engine.optimizers import TorchOptimizer
from covey.engine.recipe import OwnObjective
from covey.engine.vmap import VmapEngine

MakeEngine = Callable[[nn.Module], Engine]
PointJob = Callable[..., TrainingJob]


def first_weight(engine: Engine, job: TrainingJob) -> float:
    """The two weights of `point_job` are each other's opposite."""
    (trained,) = engine.train([job])
    weight = trained["weight"][:, 0]
    assert float(weight.sum()) == pytest.approx(0, abs=1e-6)
    return float(weight[0])


@pytest.mark.parametrize(
    ("recipe", "weight"),
    [
        # gradient -1/2, then p - 1 with p = 1 / (1 + e^-2w), as in test_by_hand
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
    ],
    ids=["momentum", "nesterov", "decay", "proximal", "clipped", "adam"],
)
def test_two_steps_by_hand(
    make_engine: MakeEngine, point_job: PointJob, recipe: Recipe, weight: float
):
    engine = make_engine(nn.Linear(1, 2, bias=False))
    job = point_job(replace(recipe, local_epochs=2, learning_rate=0.1))
    assert first_weight(engine, job) == pytest.approx(weight, abs=2e-5)


def test_adamw_shrinks_weights_by_themselves(make_engine: MakeEngine, point_job: PointJob):
    # after step 1: w = 0.1; step 2 begins with w (1 - 0.1 * 0.5) = 0.095
    engine = make_engine(nn.Linear(1, 2, bias=False))
    recipe = Recipe(local_epochs=2, learning_rate=0.1, optimizer=AdamW(weight_decay=0.5))
    expected = 0.095 + 0.1 * 0.473772 / 0.475728
    assert first_weight(engine, point_job(recipe)) == pytest.approx(expected, abs=2e-5)


def test_losses_by_hand():
    outputs, labels = torch.tensor([[math.log(3), 0.0]]), torch.tensor([0])  # p = 3/4
    smooth = -(0.9 * math.log(3 / 4) + 0.1 * math.log(1 / 4))
    found = CrossEntropy(label_smoothing=0.2).losses(outputs, labels)
    torch.testing.assert_close(found, torch.tensor([smooth]))
    focal = (1 / 4) ** 2 * math.log(4 / 3)
    found = Focal(gamma=2.0).losses(outputs, labels)
    torch.testing.assert_close(found, torch.tensor([focal]))
    errors = Huber(delta=1.0).losses(torch.tensor([[0.5], [3.0]]), torch.zeros(2))
    torch.testing.assert_close(errors, torch.tensor([0.125, 2.5]))


def test_a_certain_answer_has_a_finite_slope():
    outputs = torch.tensor([[200.0, 0.0]], requires_grad=True)
    Focal(gamma=0.5).losses(outputs, torch.tensor([0])).sum().backward()
    assert outputs.grad is not None
    assert outputs.grad.isfinite().all()


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [
        (Stepwise(every=2, gamma=0.5), [0.4, 0.4, 0.2, 0.2]),
        (Cosine(final=0.5), [0.4, 0.2 + 0.2 * 0.853553, 0.3, 0.2 + 0.2 * 0.146447]),
        (WarmUp(over=2, first=0.5), [0.2, 0.3, 0.4, 0.4]),
    ],
)
def test_schedules_by_hand(schedule: Schedule, rates: list[float]):
    recipe = Recipe(learning_rate=0.4, schedule=schedule)
    found = [recipe.at(t, 4) for t in range(4)]
    assert [each.learning_rate for each in found] == pytest.approx(rates)
    assert found[3].at(0, 4) is found[3]  # the rate of a round stays


def test_the_numbers_of_a_round_are_carried_out_with_ones_own_parts():
    here = Recipe(optimizer=Adam(), schedule=Cosine(), loss=Focal(), batch_size=9)
    there = replace(here, local_steps=3, record_clip=1.0).at(2, 4)
    assert here.with_numbers(there.numbers) == there
    assert type(there.numbers).__slots__ == (
        *("local_epochs", "local_steps", "batch_size", "learning_rate"),
        *("least_steps", "record_clip", "record_noise", "drop_last"),
    )


class Dynamic(Objective):
    """FedDyn's client (Acar et al., 2021)."""

    elementwise = True

    alpha: float = 0.5

    def correction(self, weights, start, memory):
        past = memory.get("past", [0 * value for value in start])
        return [self.alpha * (w - s) - h for w, s, h in zip(weights, start, past, strict=True)]

    def remember(self, memory, start, trained, steps, recipe):
        past = memory.get("past", {n: 0 * value for n, value in start.items()})
        return {"past": {n: h - self.alpha * (trained[n] - start[n]) for n, h in past.items()}}


def test_what_a_client_remembers_reaches_its_next_round(
    make_engine: MakeEngine, point_job: PointJob
):
    # round 1: w = 0.05 as by hand, h = -0.5 * 0.05 = -0.025
    # round 2, from 0 again: w = 0 - 0.1 (-0.5 + 0.025) = 0.0475
    engine = make_engine(nn.Linear(1, 2, bias=False))
    objective = Dynamic()
    recipe = Recipe(learning_rate=0.1, objective=objective)
    job = point_job(recipe)
    (trained,) = engine.train([job])
    kept = objective.remember({}, job.start, trained, 1, recipe)
    again = replace(job, memory=kept)
    other = replace(job, memory={"past": {"weight": torch.ones(2, 1)}})
    left, right, alone = engine.train([again, other, job])
    torch.testing.assert_close(left["weight"], torch.tensor([[0.0475], [-0.0475]]))
    torch.testing.assert_close(right["weight"], torch.tensor([[0.15], [0.05]]))
    torch.testing.assert_close(alone["weight"], torch.tensor([[0.05], [-0.05]]))


class Mean(Loss):
    def losses(self, outputs: Tensor, labels: Tensor) -> Tensor:
        return (outputs[:, 0] - labels).mean()


class Broken(Loss):
    def losses(self, outputs: Tensor, labels: Tensor) -> Tensor:
        return outputs[:, 7]


def test_a_part_that_does_not_fit_is_told_by_its_name(make_engine: MakeEngine, point_job: PointJob):
    def short(
        weights: Sequence[Tensor], start: Sequence[Tensor], memory: Mapping[str, object]
    ) -> list[Tensor]:
        return []

    engine = make_engine(nn.Linear(1, 2, bias=False))
    job = point_job(Recipe(), count=3)
    for recipe, said in (
        (Recipe(loss=Mean()), "Mean must return one number per example"),
        (Recipe(loss=Broken()), "Broken raised IndexError"),
        (Recipe(loss=Loss()), r"Loss raised NotImplementedError: write losses\(outputs, labels\)"),
    ):
        with pytest.raises(ConfigError, match=said):
            list(engine.train([replace(job, recipe=recipe)]))
    partly = {"past": {"bias": torch.ones(2)}}
    with pytest.raises(ConfigError, match="'past' must have a tensor for every"):
        list(engine.train([replace(job, memory=partly)]))
    if not isinstance(engine, VmapEngine):
        own = Recipe(objective=OwnObjective(function=short))
        with pytest.raises(ConfigError, match="one tensor for each of the weights"):
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
        (Recipe(record_clip=1.0), "record_clip needs .* the gradient of every example"),
    ],
)
def test_the_vmap_engine_says_what_it_cannot_do(point_job: PointJob, recipe: Recipe, said: str):
    engine = VmapEngine(nn.Linear(1, 2, bias=False))
    with pytest.raises(ConfigError, match=f"{said}.*Use the parallel engine"):
        list(engine.train([point_job(recipe)]))


def test_momentum_belongs_to_one_optimizer():
    assert Recipe(momentum=0.5) == Recipe(optimizer=Sgd(momentum=0.5))
    assert replace(Recipe(momentum=0.5), local_steps=2).optimizer == Sgd(momentum=0.5)
    with pytest.raises(ConfigError, match="another optimizer, Adam"):
        Recipe(momentum=0.5, optimizer=Adam())
    with pytest.raises(ValueError, match="momentum > 0"):
        Sgd(nesterov=True)


def test_a_schedule_gives_a_rate_or_is_refused():
    class Wild(Schedule):
        def factor(self, round_index: int, rounds: int) -> float:
            return -1.0

    with pytest.raises(ConfigError, match=r"found -1\.0 for round 2 of 4"):
        Recipe(schedule=Wild()).at(2, 4)


def test_a_loss_that_mixes_examples_says_so():
    class Contrast(Loss):
        mixes_examples = True

    assert Recipe(loss=Contrast()).by_batch == ("loss",)
    assert Recipe(record_clip=1.0).apart == ("record_clip",)
