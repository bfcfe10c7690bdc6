import gc
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from torch import nn

from covey import Engine, ReferenceEngine
from covey.engine.cpu import ParallelEngine
from covey.engine.ray import RayEngine
from covey.engine.vmap import VmapEngine

MakeEngine = Callable[[nn.Module], Engine]

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
    ray = pytest.importorskip("ray", reason="the extra ray")
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
