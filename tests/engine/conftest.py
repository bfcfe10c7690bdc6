from collections.abc import Callable

import pytest
from torch import nn

from covey import Engine, ReferenceEngine
from covey.engine.cpu import ParallelEngine
from covey.engine.vmap import VmapEngine

MakeEngine = Callable[[nn.Module], Engine]

ENGINES: dict[str, MakeEngine] = {
    "reference": ReferenceEngine,
    "parallel": lambda module: ParallelEngine(module, workers=3),
    "vmap": lambda module: VmapEngine(module, chunk=2),
}
ON_RAY = pytest.param("ray", marks=pytest.mark.slow)


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
