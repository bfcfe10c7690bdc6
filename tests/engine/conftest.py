import gc
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from covey import Engine, Examples, Recipe, ReferenceEngine, Streams, TrainingJob
from covey.engine.cpu import ParallelEngine
from covey.engine.ray import RayEngine
from covey.engine.vmap import VmapEngine
from covey.models.build import initial_params

MakeEngine = Callable[[nn.Module], Engine]
MakeJobs = Callable[..., list[TrainingJob]]

ENGINES: dict[str, MakeEngine] = {
    "reference": ReferenceEngine,
    "parallel": lambda module: ParallelEngine(module, workers=3),
    "vmap": lambda module: VmapEngine(module, chunk=2),
}
ON_RAY = pytest.param("ray", marks=pytest.mark.slow)
RAY_WORKERS = 2


@pytest.fixture(params=[*ENGINES, ON_RAY])
def make_engine(request: pytest.FixtureRequest) -> MakeEngine:
    return made(request)


@pytest.fixture(params=[*(name for name in ENGINES if not name.startswith("vmap")), ON_RAY])
def private_engine(request: pytest.FixtureRequest) -> MakeEngine:
    """Engines that have the gradient of one example."""
    return made(request)


def made(request: pytest.FixtureRequest) -> MakeEngine:
    if request.param == "ray":
        return request.getfixturevalue("ray_engine")
    return ENGINES[request.param]


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[Any]:
    """A cluster of one node; its processes find what this one can import."""
    ray = pytest.importorskip("ray", reason="pip install 'covey[ray]'")
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
        patched.setenv("RAY_USAGE_STATS_ENABLED", "0")
        with files_left_open():
            cluster = cluster_utils.Cluster(
                initialize_head=True,
                head_node_args={"num_cpus": RAY_WORKERS, "include_dashboard": False},
            )
            kept = RayEngine(nn.Linear(1, 1), RAY_WORKERS, address=cluster.address)
            assert kept.score([]) == []
        yield cluster
        with files_left_open():
            ray.shutdown()
            cluster.shutdown()
            del kept


@contextmanager
def files_left_open() -> Iterator[None]:
    """Say nothing of files that Ray does not close."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield
        gc.collect()


@pytest.fixture
def ray_engine(ray_cluster: Any) -> Callable[..., RayEngine]:
    """Engines that share the processes of the cluster."""

    def make(module: nn.Module, **options: Any) -> RayEngine:
        address = ray_cluster.address
        return RayEngine(module, RAY_WORKERS, address=address, **options)

    return make


class Odd(nn.Module):
    """One layer that is never used and one that is frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.used = nn.Linear(16, 3)
        self.unused = nn.Linear(2, 2)
        self.frozen = nn.Linear(3, 3).requires_grad_(requires_grad=False)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.frozen(self.used(inputs.flatten(1)))


def tiny_cnn(*extra: nn.Module) -> nn.Module:
    """A network of 47 parameters, plus those of the extra layers, for 1x4x4 images."""
    with Streams(0).at("tiny").lent_to_torch():
        return nn.Sequential(
            nn.Conv2d(1, 2, kernel_size=3, padding=1),
            *extra,
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(8, 3),
            nn.LogSoftmax(dim=1),
        )


@pytest.fixture
def make_module() -> Callable[..., nn.Module]:
    return tiny_cnn


BUILDS: dict[str, Callable[[], nn.Module]] = {
    "plain": tiny_cnn,
    "batchnorm": lambda: tiny_cnn(nn.BatchNorm2d(2)),
    "group-norm": lambda: tiny_cnn(nn.GroupNorm(1, 2)),
    "inner-relu": lambda: tiny_cnn(nn.ReLU(inplace=True)),
    "odd": Odd,
}


@pytest.fixture
def build_module() -> Callable[[str], nn.Module]:
    """Networks by name, always with the same weights."""

    def build(name: str) -> nn.Module:
        with Streams(0).at("tiny").lent_to_torch():
            return BUILDS[name]()

    return build


def random_images(count: int, draws: torch.Generator) -> Examples:
    """Images of 1x4x4 in three classes."""
    inputs = torch.randint(256, (count, 1, 4, 4), dtype=torch.uint8, generator=draws)
    return Examples(inputs, torch.randint(3, (count,), generator=draws))


@pytest.fixture(scope="session")
def some_images() -> Callable[..., Examples]:
    def some(count: int, seed: int = 0) -> Examples:
        return random_images(count, torch.Generator().manual_seed(seed))

    return some


@pytest.fixture
def point_job() -> Callable[..., TrainingJob]:
    """Examples that are all 1 of class 0, and a linear model at the origin."""

    def make(recipe: Recipe, count: int = 1) -> TrainingJob:
        examples = Examples(torch.ones(count, 1), torch.zeros(count, dtype=torch.long))
        start = {"weight": torch.zeros(2, 1)}
        return TrainingJob(start, examples, Streams(0), recipe)

    return make


@pytest.fixture
def make_jobs() -> MakeJobs:
    """Jobs from one start, one for each client size, every client with its own data."""

    def make(module: nn.Module, sizes: tuple[int, ...], recipe: Recipe) -> list[TrainingJob]:
        start = initial_params(module)
        draws = torch.Generator().manual_seed(0)
        return [
            TrainingJob(
                start=start,
                examples=random_images(size, draws),
                streams=Streams(0).at("local training", client),
                recipe=recipe,
            )
            for client, size in enumerate(sizes)
        ]

    return make
