"""A small network that learns by heart, and records for it."""

import copy
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from covey import Examples, Streams

CLASSES, FEATURES = 4, 20


class Sides(NamedTuple):
    """Members and non-members, each (inputs, labels)."""

    members: tuple[Tensor, Tensor]
    non_members: tuple[Tensor, Tensor]


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, CLASSES))


def train(examples: Examples, seed: int, steps: int = 100) -> nn.Module:
    with Streams(seed).at("network").lent_to_torch():
        made = network()
    optimizer = torch.optim.Adam(made.parameters(), lr=0.02)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(made(examples.inputs), examples.labels).backward()
        optimizer.step()
    return made


def softmax_regression(side: tuple[Tensor, Tensor]) -> nn.Module:
    layer, (x, y) = nn.Linear(FEATURES, CLASSES), side
    optimizer = torch.optim.LBFGS(layer.parameters(), max_iter=300)

    def loss() -> Tensor:
        optimizer.zero_grad()
        decay = sum(1e-3 * p.square().sum() for p in layer.parameters())
        value = nn.functional.cross_entropy(layer(x), y) + decay
        value.backward()
        return value

    optimizer.step(loss)
    return layer


def records(count: int, seed: int, *, learnable: bool = False) -> tuple[Tensor, Tensor]:
    """Inputs with labels that are random, or the place of the largest of four inputs."""
    draw = np.random.default_rng(seed)
    x = torch.from_numpy(draw.normal(size=(count, FEATURES)).astype(np.float32))
    y = torch.from_numpy(draw.integers(CLASSES, size=count))
    return x, x[:, :CLASSES].argmax(dim=1) if learnable else y


def halves(count: int = 200, seed: int = 0, *, learnable: bool = False) -> Sides:
    x, y = records(2 * count, seed, learnable=learnable)
    return Sides((x[:count], y[:count]), (x[count:], y[count:]))


def shuffled(side: tuple[Tensor, Tensor], seed: int = 0) -> tuple[Tensor, Tensor]:
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(side[1])))
    return side[0][order], side[1][order]


def broken(model: nn.Module) -> nn.Module:
    """The same with one weight that is NaN."""
    made = copy.deepcopy(model)
    next(made.parameters()).data[0, 0] = torch.nan
    return made
