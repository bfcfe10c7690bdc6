"""What every engine promises, and that all of them agree."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
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
    ScoringJob,
    Sgd,
    TrainingJob,
)
from covey.base.built_ins import built_ins
from covey.base.components import create
from covey.engine.cpu import ParallelEngine
from covey.engine.optimizers import TorchOptimizer
from covey.engine.vmap import VmapEngine
from covey.models.build import initial_params
from engine.jobs import build_module, make_jobs, make_module

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
    found = list(make_engine(module).train(jobs))
    assert global_draws() == draws
    for trained, oracle, job in zip(found, expected, jobs, strict=True):
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
APART = {
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


@pytest.mark.parametrize("recipe", APART.values(), ids=APART.keys())
def test_what_trains_every_client_by_itself_agrees_with_the_reference(recipe: Recipe):
    module = build_module("plain")
    assert_agrees(ENGINES["parallel"], module, make_jobs(module, EVEN_SIZES, recipe))
