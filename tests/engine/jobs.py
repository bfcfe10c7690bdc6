"""Small networks, and jobs of clients with random images."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from covey import Examples, Recipe, Streams, TrainingJob
from covey.models.build import initial_params


class Odd(nn.Module):
    """One layer that is never used and one that is frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.used = nn.Linear(16, 3)
        self.unused = nn.Linear(2, 2)
        self.frozen = nn.Linear(3, 3).requires_grad_(requires_grad=False)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.frozen(self.used(inputs.flatten(1)))


def make_module(*extra: nn.Module) -> nn.Module:
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


BUILDS: dict[str, Callable[[], nn.Module]] = {
    "plain": make_module,
    "batchnorm": lambda: make_module(nn.BatchNorm2d(2)),
    "group-norm": lambda: make_module(nn.GroupNorm(1, 2)),
    "inner-relu": lambda: make_module(nn.ReLU(inplace=True)),
    "odd": Odd,
}


def build_module(name: str) -> nn.Module:
    """Return a network by its name, always with the same weights."""
    with Streams(0).at("tiny").lent_to_torch():
        return BUILDS[name]()


def random_images(count: int, draws: torch.Generator) -> Examples:
    """Return images of 1x4x4 in three classes."""
    inputs = torch.randint(256, (count, 1, 4, 4), dtype=torch.uint8, generator=draws)
    return Examples(inputs, torch.randint(3, (count,), generator=draws))


def some_images(count: int, seed: int = 0) -> Examples:
    return random_images(count, torch.Generator().manual_seed(seed))


def point_job(recipe: Recipe, count: int = 1) -> TrainingJob:
    """Return a job of examples that are all 1 of class 0, and a linear model at the origin."""
    examples = Examples(torch.ones(count, 1), torch.zeros(count, dtype=torch.long))
    return TrainingJob({"weight": torch.zeros(2, 1)}, examples, Streams(0), recipe)


def make_jobs(module: nn.Module, sizes: tuple[int, ...], recipe: Recipe) -> list[TrainingJob]:
    """Return jobs from one start, one for each client size, every client with its own data."""
    start, draws = initial_params(module), torch.Generator().manual_seed(0)
    return [
        TrainingJob(
            start=start,
            examples=random_images(size, draws),
            streams=Streams(0).at("local training", client),
            recipe=recipe,
        )
        for client, size in enumerate(sizes)
    ]
