"""What every engine promises, and that all of them agree."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from covey import Engine, Params, Recipe, ReferenceEngine, ScoringJob, TrainingJob
from covey.models.build import initial_params

MakeEngine = Callable[[nn.Module], Engine]
BuildModule = Callable[[str], nn.Module]
MakeModule = Callable[..., nn.Module]
MakeJobs = Callable[..., list[TrainingJob]]

SIZES = (10, 4, 10, 7, 10, 1)
RECIPE = Recipe(local_epochs=2, batch_size=4, learning_rate=0.1, momentum=0.5)


def assert_params_close(left: Params, right: Params, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(dict(left), dict(right), rtol=0, atol=tolerance)


def global_numpy_state() -> np.ndarray:
    state = np.random.get_state(legacy=False)  # noqa: NPY002 - the state to protect
    return state["state"]["key"]


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("build", ["plain", "batchnorm", "inner-relu", "odd"])
def test_training_agrees_with_the_reference(
    make_engine: MakeEngine,
    build_module: BuildModule,
    make_jobs: MakeJobs,
    build: str,
    momentum: float,
):
    module = build_module(build)
    jobs = make_jobs(module, SIZES, replace(RECIPE, momentum=momentum))
    expected = ReferenceEngine(module).train(jobs)
    for trained, oracle in zip(make_engine(module).train(jobs), expected, strict=True):
        assert_params_close(trained, oracle)


def test_training_moves_the_params_and_counts_batchnorm_batches(
    make_engine: MakeEngine, make_module: MakeModule, make_jobs: MakeJobs
):
    module = make_module(nn.BatchNorm2d(2))
    (job,) = make_jobs(module, (10,), RECIPE)
    (trained,) = make_engine(module).train([job])
    assert not torch.equal(trained["0.weight"], job.start["0.weight"])
    assert trained["1.num_batches_tracked"].item() == 6  # 2 epochs of 4 + 4 + 2
    assert not torch.equal(trained["1.running_mean"], job.start["1.running_mean"])


def test_names_shapes_and_dtypes_are_kept(
    make_engine: MakeEngine, make_module: MakeModule, make_jobs: MakeJobs
):
    module = make_module(nn.BatchNorm2d(2))
    jobs = make_jobs(module, SIZES, RECIPE)
    for trained in make_engine(module).train(jobs):
        assert list(trained) == list(jobs[0].start)
        for name, value in jobs[0].start.items():
            assert trained[name].shape == value.shape
            assert trained[name].dtype == value.dtype
            assert trained[name].is_contiguous()
            assert not trained[name].requires_grad


def test_no_jobs_give_no_results(make_engine: MakeEngine, make_module: MakeModule):
    engine = make_engine(make_module())
    assert list(engine.train([])) == []
    assert engine.score([]) == []


def test_no_examples_change_nothing(
    make_engine: MakeEngine, make_module: MakeModule, make_jobs: MakeJobs
):
    module = make_module()
    (job,) = make_jobs(module, (0,), replace(RECIPE, local_steps=3))
    engine = make_engine(module)
    (trained,) = engine.train([job])
    assert_params_close(trained, job.start, 0)
    (scored,) = engine.score([ScoringJob(job.start, job.examples)])
    assert len(scored.losses) == len(scored.predictions) == 0


def test_training_twice_gives_the_same_bits(
    make_engine: MakeEngine, make_module: MakeModule, make_jobs: MakeJobs
):
    module = make_module(nn.BatchNorm2d(2))
    jobs = make_jobs(module, SIZES, RECIPE)
    engine = make_engine(module)
    for first, second in zip(engine.train(jobs), engine.train(jobs), strict=True):
        assert_params_close(first, second, 0)


def test_a_result_does_not_depend_on_the_other_jobs(
    make_engine: MakeEngine, make_module: MakeModule, make_jobs: MakeJobs
):
    module = make_module(nn.BatchNorm2d(2))
    jobs = make_jobs(module, SIZES, RECIPE)
    engine = make_engine(module)
    forward = list(engine.train(jobs))
    backward = list(engine.train(iter(jobs[::-1])))
    alone = [next(engine.train([job])) for job in jobs]
    for index, trained in enumerate(forward):
        assert_params_close(trained, backward[-1 - index], 1e-6)
        assert_params_close(trained, alone[index], 1e-6)


def test_the_callers_tensors_and_module_stay_as_they_are(
    make_engine: MakeEngine, make_module: MakeModule, make_jobs: MakeJobs
):
    module = make_module(nn.BatchNorm2d(2))
    before = initial_params(module)
    untouched = make_jobs(module, SIZES, RECIPE)
    jobs = make_jobs(module, SIZES, RECIPE)
    engine = make_engine(module)
    list(engine.train(jobs))
    engine.score([ScoringJob(job.start, job.examples) for job in jobs])
    assert_params_close(initial_params(module), before, 0)
    for job, copy in zip(jobs, untouched, strict=True):
        assert_params_close(job.start, copy.start, 0)
        assert torch.equal(job.examples.inputs, copy.examples.inputs)
        assert torch.equal(job.examples.labels, copy.examples.labels)


def test_results_share_no_memory(
    make_engine: MakeEngine, make_module: MakeModule, make_jobs: MakeJobs
):
    module = make_module()
    jobs = make_jobs(module, (5, 5), RECIPE)
    first, second = make_engine(module).train(jobs)
    kept = {name: value.clone() for name, value in second.items()}
    for value in first.values():
        value.zero_()
    assert_params_close(second, kept, 0)


def test_local_steps_replace_epochs(
    make_engine: MakeEngine, make_module: MakeModule, make_jobs: MakeJobs
):
    module = make_module(nn.BatchNorm2d(2))
    jobs = make_jobs(module, (10, 3), replace(RECIPE, local_steps=5))
    for trained in make_engine(module).train(jobs):
        assert trained["1.num_batches_tracked"].item() == 5


def test_global_randomness_is_untouched(
    make_engine: MakeEngine, make_module: MakeModule, make_jobs: MakeJobs
):
    module = make_module()
    jobs = make_jobs(module, SIZES, RECIPE)
    before = torch.get_rng_state(), global_numpy_state()
    list(make_engine(module).train(jobs))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(global_numpy_state(), before[1])


def test_scoring_in_parts_equals_scoring_at_once(
    make_engine: MakeEngine, make_module: MakeModule, make_jobs: MakeJobs
):
    module = make_module(nn.BatchNorm2d(2))
    jobs = make_jobs(module, (601, 3), RECIPE)
    scoring = [ScoringJob(job.start, job.examples) for job in jobs]
    scored = make_engine(module).score(scoring)
    for got, job in zip(scored, jobs, strict=True):
        with torch.no_grad():
            log_p = module.eval()(job.examples.inputs.float() / 255)
        expected = -log_p[torch.arange(len(job.examples)), job.examples.labels]
        torch.testing.assert_close(got.losses, expected, rtol=0, atol=1e-6)
        assert torch.equal(got.predictions, log_p.argmax(dim=1))
