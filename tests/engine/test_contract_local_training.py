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
    Sgd,
    TrainingJob,
)
from covey.base.built_ins import BUILT_INS
from covey.base.components import create
from covey.engine.cpu import ParallelEngine
from covey.engine.optimizers import TorchOptimizer
from covey.engine.vmap import VmapEngine
from engine.jobs import build_module, make_jobs

MakeEngine = Callable[[nn.Module], Engine]

SIZES = (10, 4, 10, 7)
RECIPE = Recipe(local_epochs=2, batch_size=4, learning_rate=0.05)
BASES: dict[str, type[Any]] = {"loss": Loss, "objective": Objective, "optimizer": Optimizer}
PARTS: dict[str, Recipe] = {
    **{
        f"{kind} {name}": replace(RECIPE, **{kind: create(kind, name, f"train.{kind}", base)})
        for kind, base in BASES.items()
        for name in BUILT_INS[kind]
    },
    "momentum": replace(RECIPE, optimizer=Sgd(momentum=0.9)),
    "decay alone": replace(RECIPE, optimizer=Sgd(weight_decay=0.1)),
    "adam and decay": replace(RECIPE, optimizer=Adam(weight_decay=0.1)),
    "short batches left out": replace(RECIPE, drop_last=True),
    "clipped": replace(RECIPE, max_gradient_norm=0.05),
    "all": replace(
        RECIPE,
        optimizer=Sgd(momentum=0.9, nesterov=True, weight_decay=0.01),
        objective=Proximal(mu=1.0),
        max_gradient_norm=0.5,
    ),
}
APART = {
    **{
        name: replace(RECIPE, optimizer=TorchOptimizer(function=getattr(torch.optim, name)))
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


def assert_close(left: Params, right: Params, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(dict(left), dict(right), rtol=0, atol=tolerance)


def assert_agrees(make: MakeEngine, module: nn.Module, jobs: list[TrainingJob]) -> None:
    expected = list(ReferenceEngine(module).train(jobs))
    for trained, oracle in zip(make(module).train(jobs), expected, strict=True):
        assert_close(trained, oracle)
    assert any(not torch.equal(value, jobs[0].start[name]) for name, value in expected[0].items())


@pytest.mark.parametrize("make", ENGINES.values(), ids=list(ENGINES))
@pytest.mark.parametrize("recipe", PARTS.values(), ids=PARTS.keys())
def test_training_agrees_with_the_reference(recipe: Recipe, make: MakeEngine):
    module = build_module("plain")
    assert_agrees(make, module, make_jobs(module, SIZES, recipe))


@pytest.mark.parametrize("recipe", APART.values(), ids=APART.keys())
def test_what_trains_every_client_by_itself_agrees_with_the_reference(recipe: Recipe):
    module = build_module("plain")
    assert_agrees(ENGINES["parallel"], module, make_jobs(module, SIZES, recipe))
