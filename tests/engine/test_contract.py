"""What every engine promises, by hand and against the reference."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
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
    Optimizer,
    Params,
    Proximal,
    Recipe,
    ReferenceEngine,
    Scored,
    ScoringJob,
    Sgd,
    Streams,
    TrainingJob,
)
from covey.base.built_ins import built_ins
from covey.base.components import create
from covey.engine.cpu import ParallelEngine
from covey.engine.optimizers import TorchOptimizer
from covey.engine.protocol import ScoredOnce
from covey.engine.recipe import OwnObjective
from covey.engine.vmap import VmapEngine
from covey.models.build import initial_params
from engine.jobs import build_module, make_jobs, make_module, point_job

MakeEngine = Callable[[nn.Module], Engine]

SIZES = (10, 4, 10, 7, 0, 1)
RECIPE = Recipe(local_epochs=2, batch_size=4, learning_rate=0.1, optimizer=Sgd(momentum=0.9))


def assert_params_close(left: Params, right: Params, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(dict(left), dict(right), rtol=0, atol=tolerance)


def global_draws() -> tuple[list[int], list[int]]:
    numpys = np.random.get_state(legacy=False)  # noqa: NPY002 - the state to protect
    return torch.get_rng_state().tolist(), numpys["state"]["key"].tolist()


@pytest.mark.parametrize("build", ["batchnorm", "inner-relu", "odd"])
def test_training_agrees_with_the_reference(make_engine: MakeEngine, build: str):
    module = build_module(build)
    jobs, draws = make_jobs(module, SIZES, RECIPE), global_draws()
    expected = list(ReferenceEngine(module).train(jobs))
    updates = list(make_engine(module).train(jobs))
    assert global_draws() == draws
    for trained, oracle, job in zip(updates, expected, jobs, strict=True):
        assert_params_close(trained, oracle)
        assert list(trained) == list(job.start)
        for name, value in job.start.items():
            assert (trained[name].shape, trained[name].dtype) == (value.shape, value.dtype)
            assert trained[name].is_contiguous()
            assert not trained[name].requires_grad


def test_no_jobs_give_no_results(make_engine: MakeEngine):
    engine = make_engine(make_module())
    assert list(engine.train([])) == []
    assert engine.score([]) == []


def test_a_result_depends_on_its_job_alone_and_is_nobody_elses(make_engine: MakeEngine):
    module = make_module(nn.BatchNorm2d(2))
    jobs, engine = make_jobs(module, SIZES, RECIPE), make_engine(module)
    forward = list(engine.train(jobs))
    alone = [next(engine.train([job])) for job in jobs]
    backward = list(engine.train(iter(jobs[::-1])))
    for one, again in zip(forward, engine.train(jobs), strict=True):
        assert_params_close(one, again, 0)
    for value in forward[0].values():
        value.zero_()
    for others in (alone, backward[::-1]):
        for one, other in zip(forward[1:], others[1:], strict=True):
            assert_params_close(one, other, 1e-6)


def test_the_callers_tensors_and_module_stay_as_they_are(make_engine: MakeEngine):
    module = make_module(nn.BatchNorm2d(2))
    before = initial_params(module)
    jobs, untouched = (make_jobs(module, SIZES, RECIPE) for _ in range(2))
    engine = make_engine(module)
    list(engine.train(jobs))
    engine.score([ScoringJob(job.start, job.examples) for job in jobs])
    assert_params_close(initial_params(module), before, 0)
    for job, copy in zip(jobs, untouched, strict=True):
        assert_params_close(job.start, copy.start, 0)
        assert torch.equal(job.examples.inputs, copy.examples.inputs)
        assert torch.equal(job.examples.labels, copy.examples.labels)


def test_local_steps_replace_epochs(make_engine: MakeEngine):
    module = make_module(nn.BatchNorm2d(2))
    jobs = make_jobs(module, (10, 3), replace(RECIPE, local_steps=5))
    for trained in make_engine(module).train(jobs):
        assert trained["1.num_batches_tracked"].item() == 5


def test_scoring_in_parts_equals_scoring_at_once(make_engine: MakeEngine):
    module = make_module(nn.BatchNorm2d(2))
    jobs = make_jobs(module, (601, 3, 0), RECIPE)
    scored = make_engine(module).score([ScoringJob(job.start, job.examples) for job in jobs])
    for got, job in zip(scored, jobs, strict=True):
        with torch.no_grad():
            log_p = module.eval()(job.examples.inputs.float() / 255)
        expected = -log_p[torch.arange(len(job.examples)), job.examples.labels]
        torch.testing.assert_close(got.losses, expected, rtol=0, atol=1e-6)
        assert torch.equal(got.predictions, log_p.argmax(dim=1))


# local training: optimizers, losses, objectives, schedules


EVEN_SIZES = (10, 4, 10, 7)
GENTLE = Recipe(local_epochs=2, batch_size=4, learning_rate=0.05)
BASES: dict[str, type[Any]] = {"loss": Loss, "objective": Objective, "optimizer": Optimizer}
PARTS: dict[str, Recipe] = {
    **{
        f"{kind} {name}": replace(GENTLE, **{kind: create(kind, name, f"train.{kind}", base)})
        for kind, base in BASES.items()
        for name in built_ins(kind)
    },
    "momentum": replace(GENTLE, optimizer=Sgd(momentum=0.9)),
    "decay alone": replace(GENTLE, optimizer=Sgd(weight_decay=0.1)),
    "adam and decay": replace(GENTLE, optimizer=Adam(weight_decay=0.1)),
    "short batches left out": replace(GENTLE, drop_last=True),
    "clipped": replace(GENTLE, max_gradient_norm=0.05),
    "all": replace(
        GENTLE,
        optimizer=Sgd(momentum=0.9, nesterov=True, weight_decay=0.01),
        objective=Proximal(mu=1.0),
        max_gradient_norm=0.5,
    ),
}
SEPARATE_RECIPES = {
    **{
        name: replace(GENTLE, optimizer=TorchOptimizer(function=getattr(torch.optim, name)))
        for name in ("RMSprop", "Adafactor")
    },
    **{
        f"private, {name}": replace(PARTS[name], record_clip=0.5, record_noise=0.1)
        for name in ("momentum", "adam and decay", "all")
    },
}


ENGINES: dict[str, MakeEngine] = {
    "parallel": lambda module: ParallelEngine(module, workers=2),
    "vmap": lambda module: VmapEngine(module, chunk=2),
}


def assert_agrees(make: MakeEngine, module: nn.Module, jobs: list[TrainingJob]) -> None:
    expected = list(ReferenceEngine(module).train(jobs))
    for trained, oracle in zip(make(module).train(jobs), expected, strict=True):
        assert_params_close(trained, oracle)
    assert any(not torch.equal(value, jobs[0].start[name]) for name, value in expected[0].items())


@pytest.mark.parametrize("make", ENGINES.values(), ids=list(ENGINES))
@pytest.mark.parametrize("recipe", PARTS.values(), ids=PARTS.keys())
def test_every_part_agrees_with_the_reference(recipe: Recipe, make: MakeEngine):
    module = build_module("plain")
    assert_agrees(make, module, make_jobs(module, EVEN_SIZES, recipe))


@pytest.mark.parametrize("recipe", SEPARATE_RECIPES.values(), ids=SEPARATE_RECIPES.keys())
def test_what_trains_every_client_by_itself_agrees_with_the_reference(recipe: Recipe):
    module = build_module("plain")
    assert_agrees(ENGINES["parallel"], module, make_jobs(module, EVEN_SIZES, recipe))


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
    losses = CrossEntropy(label_smoothing=0.2).losses(outputs, labels)
    torch.testing.assert_close(losses, torch.tensor([smooth]))


def test_the_cosine_schedule_by_hand():
    recipe = Recipe(learning_rate=0.4, schedule=Cosine(final=0.5))
    recipes = [recipe.at(t, 4) for t in range(4)]
    rates = [0.4, 0.2 + 0.2 * 0.853553, 0.3, 0.2 + 0.2 * 0.146447]
    assert [one.learning_rate for one in recipes] == pytest.approx(rates)
    assert recipes[3].at(0, 4) is recipes[3]  # the rate of a round stays


class Remembering(Objective):
    elementwise = True

    def correction(self, weights, start, memory):
        return [w - p for w, p in zip(weights, memory["past"], strict=True)]


def test_what_a_client_remembers_is_its_own(make_engine: MakeEngine):
    # g = (-1/2, 1/2), and w - p = -1 for both where 1 is remembered
    engine = make_engine(nn.Linear(1, 2, bias=False))
    job = point_job(Recipe(learning_rate=0.1, objective=Remembering()))
    memories = ({"weight": torch.ones(2, 1)}, {"weight": torch.zeros(2, 1)})
    moved, still = engine.train(replace(job, memory={"past": memory}) for memory in memories)
    torch.testing.assert_close(moved["weight"], torch.tensor([[0.15], [0.05]]))
    torch.testing.assert_close(still["weight"], torch.tensor([[0.05], [-0.05]]))


class Mean(Loss):
    def losses(self, outputs: Tensor, labels: Tensor) -> Tensor:
        return (outputs[:, 0] - labels).mean()


class Broken(Loss):
    def losses(self, outputs: Tensor, labels: Tensor) -> Tensor:
        return outputs[:, 7]


def test_a_part_that_does_not_fit_is_reported_by_its_name(make_engine: MakeEngine):
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


class Counting(ReferenceEngine):
    """Notes how many examples it was asked about."""

    scored = 0

    def score(self, jobs: Sequence[ScoringJob]) -> list[Scored]:
        self.scored += sum(len(job.examples) for job in jobs)
        return super().score(jobs)


def test_each_pair_of_model_and_examples_is_scored_once():
    with Streams(0).at("architecture").lent_to_torch():
        module = torch.nn.Linear(4, 3)
    engine, (one, other) = Counting(module), (initial_params(module) for _ in range(2))
    other = {name: value + 1 for name, value in other.items()}
    few, more = (Examples(torch.rand(n, 4), torch.arange(n) % 3) for n in (5, 9))
    once = ScoredOnce(engine)
    jobs = [ScoringJob(p, x) for p, x in ((one, few), (other, few), (one, few))]
    first = once.score(jobs)
    assert engine.scored == 2 * 5
    later = once.score([ScoringJob(one, more), *jobs])[1:]
    assert engine.scored == 2 * 5 + 9
    for job, *answer in zip(jobs, first, later, strict=True):
        (true,) = ReferenceEngine(module).score([job])
        for scored in answer:
            assert torch.equal(scored.losses, true.losses)
            assert torch.equal(scored.predictions, true.predictions)
            assert scored.log_probs is None


def test_examples_that_are_gone_lend_their_place_to_no_others():
    with Streams(0).at("architecture").lent_to_torch():
        module = torch.nn.Linear(4, 3)
    once, params = ScoredOnce(ReferenceEngine(module)), initial_params(module)
    for n in range(1, 50):  # each is freed before the next one is made
        (score,) = once.score(
            [ScoringJob(params, Examples(torch.rand(n, 4), torch.zeros(n).long()))]
        )
        assert len(score.losses) == n
