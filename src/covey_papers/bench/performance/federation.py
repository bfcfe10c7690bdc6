"""Federations of a given shape, of random images: how fast they train hangs on no label."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Int, UInt8
from torch import Tensor, nn

from covey.algorithms import ServerState
from covey.build import BuiltRun, Overrides, build_run
from covey.config import Config
from covey.rng import Streams
from covey_papers.bench.performance.timing import Effort

__all__ = ["Federation", "Shape", "images_of", "settings_of"]

Images = tuple[UInt8[Tensor, "examples ..."], Int[Tensor, " examples"]]
CLASSES = 10


@dataclass(frozen=True, slots=True)
class Shape:
    """What is trained, by whom and how.

    Attributes:
        sizes: images of each client.
        image: (channels, height, width), or whatever the model takes.
        model: `model.name`, or what makes a module.
        cohort: clients in a round, the first ones; 0: all.
        settings: further sections of the settings.
    """

    sizes: tuple[int, ...]
    image: tuple[int, ...] = (1, 28, 28)
    model: str | Callable[[], nn.Module] = "mnist-cnn"
    batch: int = 25
    epochs: int = 1
    cohort: int = 0
    learning_rate: float = 0.01
    settings: Mapping[str, Mapping[str, Any]] = field(
        default_factory=dict[str, Mapping[str, Any]]
    )

    @property
    def images(self) -> int:
        """How many images are trained on in a round, epoch by epoch."""
        return self.epochs * sum(self.sizes[: self.cohort or None])


def images_of(shape: Shape, streams: Streams) -> list[Images]:
    """Return each client's random images and labels."""
    generator = streams.at("images").generator()
    return [
        (
            torch.from_numpy(
                generator.integers(256, size=(n, *shape.image), dtype="u1")
            ),
            torch.from_numpy(generator.integers(CLASSES, size=n)),
        )
        for n in shape.sizes
    ]


def settings_of(shape: Shape, workers: int) -> dict[str, Any]:
    """Return the settings of a run of this shape, plain FedAvg unless it says else."""
    model = {"name": shape.model} if isinstance(shape.model, str) else {}
    sections: dict[str, Any] = {
        "population": {"holdout": 0.0},
        "model": model,
        "train": {
            "local_epochs": shape.epochs,
            "batch_size": shape.batch,
            "learning_rate": shape.learning_rate,
        },
        "method": {"name": "fedavg"},
        "redteam": {"source": "none"},
        "engine": {"name": "parallel", "workers": workers},
    }
    for name, section in shape.settings.items():
        sections[name] = {**sections.get(name, {}), **section}
    return {"rounds": 1000, **sections}


class Federation:
    """A run in memory, whose rounds are played one by one.

    A round is what the algorithm does: clients choose and train, updates are merged. The
    ledger, checkpoints and accuracies of a run are not in it.
    """

    def __init__(self, shape: Shape, data: list[Images], effort: Effort) -> None:
        clients = {f"client-{i:05d}": each for i, each in enumerate(data)}
        model = None if isinstance(shape.model, str) else shape.model
        config = Config.of(settings_of(shape, effort.workers))
        self.run: BuiltRun = build_run(config, Overrides(model, clients))
        everybody = self.run.population.clients
        self._cohort = everybody[: shape.cohort or None]
        self._state: ServerState = self.run.strategy.init(self.run.streams)

    def restart(self) -> None:
        """Go back to before the first round."""
        self._state = self.run.strategy.init(self.run.streams)

    def choose_again(self) -> None:
        """Let clients choose once more, as at the end of a run; nothing else moves."""
        t = self._state.round_index
        clients = self.run.clients(self._cohort, t)
        self.run.strategy.conclude(self._state, clients, self.run.streams.at("end", t))

    def play(self) -> None:
        """Play the next round."""
        t = self._state.round_index
        clients = self.run.clients(self._cohort, t)
        streams = self.run.streams.at("round", t)
        self._state = self.run.strategy.play_round(self._state, clients, streams).state

    @property
    def model_bytes(self) -> int:
        """What one model takes."""
        return sum(value.nbytes for value in self._state.clusters[0].values())

    @property
    def data_bytes(self) -> int:
        """What all clients' examples take."""
        held = [client.train for client in self.run.population.clients]
        return sum(each.inputs.nbytes + each.labels.nbytes for each in held)
