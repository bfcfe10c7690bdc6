from collections.abc import Callable

import pytest
import torch
from torch import nn

from covey.data.examples import Examples
from covey.engine import (
    Engine,
    ParallelEngine,
    Recipe,
    ReferenceEngine,
    TrainingJob,
    VmapEngine,
)
from covey.models import initial_params
from covey.rng import Streams

MakeEngine = Callable[[nn.Module], Engine]
MakeJobs = Callable[..., list[TrainingJob]]

ENGINES: dict[str, MakeEngine] = {
    "reference": ReferenceEngine,
    "parallel-1": lambda module: ParallelEngine(module, workers=1),
    "parallel-3": lambda module: ParallelEngine(module, workers=3),
    "vmap-whole": VmapEngine,
    "vmap-chunk-2": lambda module: VmapEngine(module, chunk=2),
}


@pytest.fixture(params=ENGINES.values(), ids=list(ENGINES))
def make_engine(request: pytest.FixtureRequest) -> MakeEngine:
    return request.param


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


@pytest.fixture
def make_jobs() -> MakeJobs:
    """Jobs from one start, one for each client size, every client with its own data."""

    def make(
        module: nn.Module, sizes: tuple[int, ...], recipe: Recipe
    ) -> list[TrainingJob]:
        start = initial_params(module)
        draws = torch.Generator().manual_seed(0)
        return [
            TrainingJob(
                start=start,
                examples=Examples(
                    torch.randint(
                        256, (size, 1, 4, 4), dtype=torch.uint8, generator=draws
                    ),
                    torch.randint(3, (size,), generator=draws),
                ),
                streams=Streams(0).at("local training", client),
                recipe=recipe,
            )
            for client, size in enumerate(sizes)
        ]

    return make
