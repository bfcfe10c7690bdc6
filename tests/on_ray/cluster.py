"""Fixtures: a cluster of Ray on this machine, and engines on it."""

import gc
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from torch import nn

from covey_ray.engine import RayEngine

RAY_WORKERS = 2


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
            engine = RayEngine(nn.Linear(1, 1), RAY_WORKERS, address=cluster.address)
            assert engine.score([]) == []
        yield cluster
        with files_left_open():
            ray.shutdown()
            cluster.shutdown()
            del engine


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
