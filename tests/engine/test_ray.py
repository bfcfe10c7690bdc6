"""What only the engine on Ray promises: many machines that do not show, and may be lost."""

import gc
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import covey
from covey import (
    Config,
    ConfigError,
    DataError,
    EngineError,
    EngineFactory,
    Examples,
    Objective,
    Params,
    Recipe,
    ScoringJob,
    TrainingJob,
)
from covey.base.components import create
from covey.engine import ray as on_ray
from covey.engine.cpu import ParallelEngine, Precision
from covey.engine.ray import RayEngine
from covey.engine.recipe import MULTICLASS, OwnLoss
from covey.settings.load import that_matter

MakeModule = Callable[..., nn.Module]
MakeJobs = Callable[..., list[TrainingJob]]
MakeRay = Callable[..., RayEngine]

SIZES = (10, 4, 10, 7, 10, 1, 25)
RECIPE = Recipe(local_epochs=2, batch_size=4, learning_rate=0.1, momentum=0.5)


def assert_same_bits(left: Params, right: Params) -> None:
    assert list(left) == list(right)
    assert all(torch.equal(left[name], right[name]) for name in left)


def built(**options: Any) -> Any:
    factory = create("engine", {"name": "ray", **options}, "engine.name", EngineFactory)
    return factory.build(nn.Linear(1, 1), MULTICLASS)


def test_without_ray_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"pip install 'covey\[ray\]'"):
        built()


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("ray://127.0.0.1:10001", "Run covey on a node of the cluster"),
        ("127.0.0.1:1", r"needs a cluster at '127\.0\.0\.1:1', but: .*ray start --head"),
        ("here:there", "needs a cluster at 'here:there'"),
    ],
)
def test_no_cluster_is_said_at_once(address, said):
    ray = pytest.importorskip("ray", reason="pip install 'covey[ray]'")
    if ray.is_initialized() and not address.startswith("ray://"):
        pytest.skip("this process is connected to a cluster, and stays so")
    with pytest.raises(ConfigError, match=said):
        built(address=address).score([])


def test_where_the_work_is_done_changes_no_result():
    here = Config.of({"engine": {"name": "ray"}})
    there = Config.of({"engine": {"name": "ray", "address": "a:1"}})
    assert that_matter(here) == that_matter(there)


class Remembering(Objective):
    """Pulls to what is remembered, and writes to it as nobody should."""

    elementwise = True

    def correction(self, weights, start, memory):
        for each in memory["past"]:
            each.mul_(0.5)
        return [w - p for w, p in zip(weights, memory["past"], strict=True)]


RECIPES = {
    "plain": RECIPE,
    "memory": replace(RECIPE, objective=Remembering()),
    "private": replace(RECIPE, record_clip=0.5, record_noise=1.0),
    "own loss": replace(RECIPE, loss=OwnLoss(function=lambda outputs, _: outputs[:, 0] ** 2)),
}


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_a_result_is_the_parallel_engines_to_the_bit(
    ray_engine: MakeRay, make_module: MakeModule, make_jobs: MakeJobs, recipe: Recipe
):
    module = make_module() if recipe.record_clip else make_module(nn.Dropout(0.5))
    jobs = make_jobs(module, SIZES, recipe)
    here, there = (
        [replace(job, memory={"past": {n: v + 1 for n, v in job.start.items()}}) for job in jobs]
        for _ in range(2)
    )
    expected = ParallelEngine(module, workers=2).train(here)
    for trained, oracle in zip(ray_engine(module).train(there), expected, strict=True):
        assert_same_bits(trained, oracle)
    for job in there:
        assert torch.equal(job.memory["past"]["0.bias"], job.start["0.bias"] + 1)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_scores_and_precision_are_the_parallel_engines_to_the_bit(
    ray_engine: MakeRay, make_module: MakeModule, make_jobs: MakeJobs, precision: Precision
):
    module = make_module(nn.BatchNorm2d(2))
    jobs = make_jobs(module, (*SIZES, 0), RECIPE)
    here, there = (ParallelEngine(module, 2, precision), ray_engine(module, precision=precision))
    for trained, oracle in zip(there.train(jobs), here.train(jobs), strict=True):
        assert_same_bits(trained, oracle)
    scoring = [ScoringJob(job.start, job.examples) for job in jobs]
    for found, oracle in zip(there.score(scoring), here.score(scoring), strict=True):
        assert torch.equal(found.losses, oracle.losses)
        assert torch.equal(found.predictions, oracle.predictions)
        assert found.correct is not None
        assert oracle.correct is not None
        assert torch.equal(found.correct, oracle.correct)


@pytest.mark.slow
def test_losses_come_back_once(ray_engine: MakeRay, make_module: MakeModule, make_jobs: MakeJobs):
    module = make_module()
    jobs = make_jobs(module, SIZES, RECIPE)

    def told(engine: Any) -> list[Sequence[Tensor]]:
        seen: list[Sequence[Tensor]] = []
        asked = [replace(job, on_losses=seen.append) for job in jobs]
        assert len(list(engine.train(asked))) == len(jobs)
        return seen

    here, there = told(ParallelEngine(module)), told(ray_engine(module))
    assert len(here) == len(there) == len(jobs)
    for found, expected in zip(there, here, strict=True):
        assert len(found) == len(expected)
        assert all(map(torch.equal, found, expected))


@pytest.mark.slow
def test_a_view_goes_to_the_store_without_what_it_is_cut_from(ray_cluster):
    ray = pytest.importorskip("ray")
    whole = torch.zeros(2**20, dtype=torch.uint8)
    for cut in ({"w": whole[:4]}, Examples(whole[:4], whole[:4])):
        held = on_ray.Held(ray, cut)
        assert len(ray.cloudpickle.dumps(ray.get(held.ref))) < 2**16


@pytest.mark.slow
def test_examples_are_placed_once_and_go_when_nobody_has_them(
    ray_engine: MakeRay, make_module: MakeModule, make_jobs: MakeJobs
):
    module = make_module()
    jobs, engine = make_jobs(module, SIZES, RECIPE), ray_engine(module)
    list(engine.train(jobs))
    placed = dict(engine._examples)
    assert len(placed) == len(jobs)
    list(engine.train(jobs))
    engine.score([ScoringJob(job.start, job.examples) for job in jobs])
    assert dict(engine._examples) == placed
    del placed, jobs
    gc.collect()
    assert len(engine._examples) == 0


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every job is a lot."""
    monkeypatch.setattr(on_ray, "BUNDLED_WORK", 0.0)


@pytest.mark.slow
@pytest.mark.usefixtures("one_by_one")
def test_jobs_are_taken_a_few_at_a_time(
    ray_engine: MakeRay, make_module: MakeModule, make_jobs: MakeJobs
):
    module = make_module()
    jobs = make_jobs(module, (5,) * 20, RECIPE)
    taken: list[TrainingJob] = []

    def arriving() -> Iterator[TrainingJob]:
        for job in jobs:
            taken.append(job)
            yield job

    results = ray_engine(module).train(arriving())
    next(results)
    most = len(taken)
    assert most == 4
    assert len(list(results)) == 19


def refuse(outputs: Tensor, labels: Tensor) -> Tensor:
    raise DataError("A loss of the user's own.")


@pytest.mark.slow
def test_an_error_of_a_users_own_part_arrives_as_it_is(
    ray_engine: MakeRay, make_module: MakeModule, make_jobs: MakeJobs
):
    module = make_module()
    recipe = replace(RECIPE, loss=OwnLoss(function=refuse))
    with pytest.raises(DataError, match="A loss of the user's own"):
        list(ray_engine(module).train(make_jobs(module, (10,), recipe)))


class Gated(nn.Module):
    """Answers when a file is there."""

    def __init__(self, gate: Path) -> None:
        super().__init__()
        self.linear, self.gate = nn.Linear(16, 3), gate

    def forward(self, inputs: Tensor) -> Tensor:
        while not self.gate.exists():
            time.sleep(0.01)
        return self.linear(inputs.flatten(1))


@pytest.mark.slow
@pytest.mark.usefixtures("one_by_one")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_node_that_is_killed_in_a_round_costs_a_retry(
    ray_cluster, ray_engine, make_jobs: MakeJobs, tmp_path, caplog
):
    module = Gated(tmp_path / "gate")
    jobs = make_jobs(module, (5,) * 12, RECIPE)
    engine = ray_engine(module)
    doomed = ray_cluster.add_node(num_cpus=1)

    def killing() -> Iterator[TrainingJob]:
        yield from jobs[:6]
        assert len(engine._hosts.nodes) == 2
        ray_cluster.remove_node(doomed, allow_graceful=False)
        module.gate.touch()
        yield from jobs[6:]

    with caplog.at_level(logging.WARNING, logger="covey"):
        trained = list(engine.train(killing()))
    assert "lost node" in caplog.text
    assert len(engine._hosts.nodes) == 1
    expected = ParallelEngine(module).train(jobs)
    for found, oracle in zip(trained, expected, strict=True):
        assert_same_bits(found, oracle)


class Fatal(nn.Module):
    """Ends the process that asks it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        os.kill(os.getpid(), signal.SIGKILL)
        return inputs


@pytest.mark.slow
def test_what_is_lost_on_every_node_ends_the_run(ray_engine, make_jobs: MakeJobs):
    module = Fatal()
    with pytest.raises(EngineError, match=r"(?s)in 3 tries.*resume the run"):
        list(ray_engine(module).train(make_jobs(module, (5,), RECIPE)))


@pytest.mark.slow
def test_a_run_on_ray_is_the_run_on_threads(ray_cluster, tmp_path):
    ray = {"name": "ray", "workers": 2, "address": ray_cluster.address}
    engines = ({"name": "parallel"}, ray)

    def models(engine: dict[str, Any]) -> list[Params]:
        settings = {
            "rounds": 2,
            "population": {"clients": 4, "examples_per_client": 20},
            "model": {"name": "mlp"},
            "engine": engine,
        }
        run = covey.run(config=settings, out=tmp_path / engine["name"])
        return [run.params(j) for j in range(2)]

    for here, there in zip(*map(models, engines), strict=True):
        assert_same_bits(here, there)


def test_the_same_object_goes_to_the_store_once():
    class Store:
        def __init__(self) -> None:
            self.held: list[object] = []

        def put(self, value: object) -> int:
            self.held.append(value)
            return len(self.held)

    store = Store()
    models = on_ray._Models(store)
    each = [{"w": torch.full((1,), float(i))} for i in range(on_ray.MODELS + 1)]
    assert [models.held(params).ref for params in each[:-1]] == [*range(1, len(each))]
    assert models.held(each[0]).ref == 1
    assert models.held(each[-1]).ref == len(each)  # which takes the place of the second
    assert models.held(each[0]).ref == 1
    assert models.held(each[1]).ref == len(each) + 1
