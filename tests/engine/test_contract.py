"""What every engine promises, and that all of them agree."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from covey import Engine, Params, Recipe, ReferenceEngine, ScoringJob
from covey.engine.optimizers import Sgd
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
