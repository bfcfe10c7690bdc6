"""Models that learn random labels by heart, and how the tests of attacks train them."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from covey import (
    ClientUpdate,
    Examples,
    Params,
    Recipe,
    ReferenceEngine,
    Streams,
    TrainingJob,
    mean_per_cluster,
)
from covey.base.params import subtract
from covey.models.build import initial_params


def noisy(digits: Examples, seed: int = 0) -> Examples:
    """Digits with random labels: whoever answers right has seen them."""
    labels = np.random.default_rng(seed).integers(10, size=len(digits))
    return Examples(digits.inputs, torch.from_numpy(labels))


def part(examples: Examples, start: int, stop: int) -> Examples:
    return examples.take(torch.arange(start, stop))


def mlp(streams: Streams, hidden: int = 32) -> nn.Module:
    with streams.lent_to_torch():
        layers = nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10)
        return nn.Sequential(nn.Flatten(), *layers)


@dataclass(frozen=True)
class Federation:
    """Rounds of federated averaging among clients with these examples."""

    recipe: Recipe
    hidden: int = 32

    @property
    def engine(self) -> ReferenceEngine:
        return ReferenceEngine(mlp(Streams(0), self.hidden))

    def init(self, streams: Streams) -> Params:
        return initial_params(mlp(streams, self.hidden))

    def play_round(
        self, _: int, params: Params, sets: tuple[Examples, ...], streams: Streams
    ) -> Params:
        recipe = self.recipe
        jobs = [
            TrainingJob(params, examples, streams.at(i), recipe) for i, examples in enumerate(sets)
        ]
        updates = (
            ClientUpdate(str(i), 0, subtract(local, params), 1.0)
            for i, local in enumerate(self.engine.train(jobs))
        )
        return mean_per_cluster((params,), updates, streams).clusters[0]

    def played(self, sets: tuple[Examples, ...], rounds: int) -> Params:
        params = self.init(Streams(0).at("model"))
        for t in range(rounds):
            params = self.play_round(t, params, sets, Streams(0).at("round", t))
        return params
