"""What only the engine on Ray promises: many machines that do not show, and may be lost."""

import logging
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from covey import ConfigError, EngineError, EngineFactory, Objective, Params, Recipe, TrainingJob
from covey.base.components import create
from covey.engine.cpu import ParallelEngine
from covey.engine.optimizers import Sgd
from covey.engine.recipe import MULTICLASS, OwnLoss
from covey_ray import engine as on_ray
from covey_ray.engine import RayEngine
from engine.jobs import make_jobs, make_module

MakeRay = Callable[..., RayEngine]

SIZES = (10, 4, 10, 7, 10, 1, 25)
RECIPE = Recipe(local_epochs=2, batch_size=4, learning_rate=0.1, optimizer=Sgd(momentum=0.5))


def assert_same_bits(left: Params, right: Params) -> None:
    assert list(left) == list(right)
    assert all(torch.equal(left[name], right[name]) for name in left)


def built(**options: Any) -> Any:
    factory = create("engine", {"name": "ray", **options}, "engine.name", EngineFactory)
    return factory.build(nn.Linear(1, 1), MULTICLASS)


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("ray://127.0.0.1:10001", "run covey on a node of the cluster"),
        ("127.0.0.1:1", r"needs a cluster at '127\.0\.0\.1:1', found .*ray start --head"),
    ],
)
def test_no_cluster_is_said_at_once(address, said):
    ray = pytest.importorskip("ray", reason="the extra ray")
    if ray.is_initialized() and not address.startswith("ray://"):
        pytest.skip("this process is connected to a cluster, and stays so")
    with pytest.raises(ConfigError, match=said):
        built(address=address).score([])


class Remembering(Objective):
    """Pulls to what is remembered, and writes to it as nobody should."""

    elementwise = True

    def correction(self, weights, start, memory):
        for name in memory["past"]:
            name.mul_(0.5)
        return [w - p for w, p in zip(weights, memory["past"], strict=True)]


RECIPES = {
    "memory": replace(RECIPE, objective=Remembering()),
    "private": replace(RECIPE, record_clip=0.5, record_noise=1.0),
    "own loss": replace(RECIPE, loss=OwnLoss(function=lambda outputs, _: outputs[:, 0] ** 2)),
}


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_a_result_is_the_parallel_engines_to_the_bit(ray_engine: MakeRay, recipe: Recipe):
    module = make_module() if recipe.record_clip else make_module(nn.Dropout(0.5))
    jobs = make_jobs(module, SIZES, recipe)
    here, remote = (
        [replace(job, memory={"past": {n: v + 1 for n, v in job.start.items()}}) for job in jobs]
        for _ in range(2)
    )
    expected = ParallelEngine(module, workers=2).train(here)
    for trained, oracle in zip(ray_engine(module).train(remote), expected, strict=True):
        assert_same_bits(trained, oracle)
    for job in remote:
        assert torch.equal(job.memory["past"]["0.bias"], job.start["0.bias"] + 1)


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every job is a lot."""
    monkeypatch.setattr(on_ray, "BUNDLED_WORK", 0.0)


class Gated(nn.Module):
    """Answers when a file is there."""

    def __init__(self, gate: Path) -> None:
        super().__init__()
        self.linear, self.gate = nn.Linear(16, 3), gate

    def forward(self, inputs: Tensor) -> Tensor:
        end = time.monotonic() + 120
        while not self.gate.exists():
            assert time.monotonic() < end, "nobody opened the gate"
            time.sleep(0.01)
        return self.linear(inputs.flatten(1))


@pytest.mark.slow
@pytest.mark.usefixtures("one_by_one")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_node_that_is_killed_in_a_round_costs_a_retry(ray_cluster, ray_engine, tmp_path, caplog):
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
    for answer, oracle in zip(trained, expected, strict=True):
        assert_same_bits(answer, oracle)


class Fatal(nn.Module):
    """Ends the process that asks it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        os.kill(os.getpid(), signal.SIGKILL)
        return inputs


@pytest.mark.slow
def test_what_is_lost_on_every_node_ends_the_run(ray_engine):
    module = Fatal()
    with pytest.raises(EngineError, match=r"(?s)in 3 tries.*resume the run"):
        list(ray_engine(module).train(make_jobs(module, (5,), RECIPE)))
