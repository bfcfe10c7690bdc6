"""What every optimizer, loss, objective and schedule promises, on every engine."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from covey import (
    Adam,
    Engine,
    Loss,
    Objective,
    Optimizer,
    Params,
    Proximal,
    Recipe,
    ReferenceEngine,
    Schedule,
    Sgd,
    TrainingJob,
)
from covey.base.built_ins import BUILT_INS
from covey.base.components import create
from covey.engine.cpu import ParallelEngine
from covey.engine.optimizers import TorchOptimizer
from covey.engine.recipe import TASKS
from covey.engine.vmap import VmapEngine

MakeEngine = Callable[[nn.Module], Engine]
BuildModule = Callable[[str], nn.Module]
MakeJobs = Callable[..., list[TrainingJob]]

SIZES = (10, 4, 10, 7)
RECIPE = Recipe(local_epochs=2, batch_size=4, learning_rate=0.05)
BASES = {"loss": Loss, "objective": Objective, "optimizer": Optimizer, "schedule": Schedule}
NAMED = [(kind, name) for kind in BASES for name in BUILT_INS[kind]]


def built_in(kind: str, name: str) -> Any:
    return create(kind, name, f"train.{kind}", BASES[kind])


PARTS: dict[str, Recipe] = {
    **{
        f"{kind} {name}": replace(RECIPE, **{kind: built_in(kind, name)})
        for kind, name in NAMED
        if (kind, name) != ("loss", "huber") and kind != "schedule"
    },
    "momentum": replace(RECIPE, optimizer=Sgd(momentum=0.9)),
    "nesterov": replace(RECIPE, optimizer=Sgd(momentum=0.9, nesterov=True)),
    "decay": replace(RECIPE, optimizer=Sgd(momentum=0.5, weight_decay=0.1)),
    "decay alone": replace(RECIPE, optimizer=Sgd(weight_decay=0.1)),
    "adam and decay": replace(RECIPE, optimizer=Adam(weight_decay=0.1)),
    "near": replace(RECIPE, objective=Proximal(mu=1.0)),
    "clipped": replace(RECIPE, max_gradient_norm=0.05),
    "all": replace(
        RECIPE,
        optimizer=Sgd(momentum=0.9, nesterov=True, weight_decay=0.01),
        objective=Proximal(mu=1.0),
        max_gradient_norm=0.5,
    ),
}
APART = {
    name: replace(RECIPE, optimizer=TorchOptimizer(function=getattr(torch.optim, name)))
    for name in ("RMSprop", "Adagrad", "NAdam", "Adafactor")
}


ENGINES: dict[str, MakeEngine] = {
    "parallel": lambda module: ParallelEngine(module, workers=2),
    "vmap": lambda module: VmapEngine(module, chunk=2),
}


@pytest.fixture(params=ENGINES.values(), ids=list(ENGINES))
def make_engine(request: pytest.FixtureRequest) -> MakeEngine:
    return request.param


def assert_close(left: Params, right: Params, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(dict(left), dict(right), rtol=0, atol=tolerance)


def assert_agrees(make: MakeEngine, module: nn.Module, jobs: list[TrainingJob]) -> None:
    expected = list(ReferenceEngine(module).train(jobs))
    for trained, oracle in zip(make(module).train(jobs), expected, strict=True):
        assert_close(trained, oracle)
    assert any(not torch.equal(value, jobs[0].start[name]) for name, value in expected[0].items())


@pytest.mark.parametrize("build", ["plain", "odd"])
@pytest.mark.parametrize("recipe", PARTS.values(), ids=PARTS.keys())
def test_training_agrees_with_the_reference(
    make_engine: MakeEngine,
    build_module: BuildModule,
    make_jobs: MakeJobs,
    recipe: Recipe,
    build: str,
):
    module = build_module(build)
    assert_agrees(make_engine, module, make_jobs(module, SIZES, recipe))


@pytest.mark.parametrize("recipe", APART.values(), ids=APART.keys())
def test_optimizers_of_torchs_agree_with_the_reference(
    build_module: BuildModule, make_jobs: MakeJobs, recipe: Recipe
):
    module = build_module("plain")
    assert_agrees(ENGINES["parallel"], module, make_jobs(module, SIZES, recipe))


@pytest.mark.parametrize("recipe", PARTS.values(), ids=PARTS.keys())
def test_private_training_agrees_with_the_reference(
    build_module: BuildModule, make_jobs: MakeJobs, recipe: Recipe
):
    module = build_module("plain")
    private = replace(recipe, record_clip=0.5, record_noise=0.1)
    assert_agrees(ENGINES["parallel"], module, make_jobs(module, SIZES, private))


@pytest.mark.parametrize(("kind", "name"), NAMED)
def test_a_built_in_is_known_by_its_name_and_its_options(kind: str, name: str):
    part = built_in(kind, name)
    assert isinstance(part, BASES[kind])
    assert part.name == name
    assert create(kind, {"name": name, **part.own_settings()}, kind, BASES[kind]) == part
    assert len({part, built_in(kind, name)}) == 1


@pytest.mark.parametrize("name", BUILT_INS["loss"])
def test_a_loss_is_a_number_per_example_and_each_has_its_own(name: str):
    task = TASKS["regression" if name == "huber" else "multiclass"]
    draws = torch.Generator().manual_seed(0)
    outputs = torch.randn(6, 1 if name == "huber" else 3, generator=draws)
    labels = torch.arange(6) % 3
    labels = labels.float() if name == "huber" else labels
    losses = built_in("loss", name).of(task)
    together = losses(outputs, labels)
    alone = [losses(outputs[i : i + 1], labels[i : i + 1]) for i in range(6)]
    torch.testing.assert_close(together, torch.cat(alone))
    assert (together >= 0).all()


@pytest.mark.parametrize("name", BUILT_INS["schedule"])
def test_a_schedule_gives_a_share_of_the_rate_in_every_round(name: str):
    schedule = built_in("schedule", name)
    factors = [schedule.factor(t, 12) for t in range(12)]
    assert all(0 <= factor <= 1 for factor in factors)
    assert max(factors) == 1


def test_not_far_from_the_start_is_not_far(
    make_engine: MakeEngine, build_module: BuildModule, make_jobs: MakeJobs
):
    module = build_module("plain")

    def away(mu: float) -> float:
        (job,) = make_jobs(module, (10,), replace(RECIPE, objective=Proximal(mu=mu)))
        (trained,) = make_engine(module).train([job])
        return sum(float((trained[n] - job.start[n]).norm()) for n in job.start)

    assert away(10.0) < away(1.0) < away(0.0)


def test_no_pull_to_the_start_is_plain_to_the_bit(
    make_engine: MakeEngine, build_module: BuildModule, make_jobs: MakeJobs
):
    module, near = build_module("batchnorm"), replace(RECIPE, objective=Proximal(mu=0))
    plain = make_engine(module).train(make_jobs(module, SIZES, RECIPE))
    for left, right in zip(
        make_engine(module).train(make_jobs(module, SIZES, near)), plain, strict=True
    ):
        assert_close(left, right, 0)


def test_a_norm_that_no_gradient_reaches_changes_little(
    make_engine: MakeEngine, build_module: BuildModule, make_jobs: MakeJobs
):
    module, wide = build_module("plain"), replace(RECIPE, max_gradient_norm=1e6)
    plain = make_engine(module).train(make_jobs(module, SIZES, RECIPE))
    clipped = make_engine(module).train(make_jobs(module, SIZES, wide))
    for left, right in zip(clipped, plain, strict=True):
        assert_close(left, right, 1e-7)
