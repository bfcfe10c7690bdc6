"""How long a client that leaves by subtraction waits for its signed proof.

The clients' data are in memory when it asks, as on a server that runs. The run is stopped
after its first round: after an answer, a run that was over lets everybody choose again and
measures its end, which is no part of the answer.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from covey.build import Overrides, build_run
from covey.config import Config
from covey.rng import Streams
from covey.runs import Run
from covey.runtime import (
    AnsweredRequest,
    RunFolder,
    continue_run,
    forget,
    open_session,
)

__all__ = ["SubtractionSize", "Waited", "waits"]

CLASSES = 10


@dataclass(frozen=True, slots=True)
class SubtractionSize:
    """A federation, and how many of its clients leave one after the other.

    Attributes:
        features: of each record; a head has one more, its bias.
    """

    clients: int
    features: int
    answers: int = 5
    records: int = 2


@dataclass(frozen=True, slots=True)
class Waited:
    """One answer.

    Attributes:
        seconds: from the request to the signed proof, by the clock.
        process_seconds: the same, of this process alone.
        failed: checks of the proof against the ledger that failed.
    """

    seconds: float
    process_seconds: float
    failed: tuple[str, ...]


def waits(size: SubtractionSize, folder: Path, seed: int = 0) -> Iterator[Waited]:
    """Play a round of a new run in this folder, and yield each leaver's wait."""
    config = _config(folder, seed)
    run = build_run(config, Overrides(clients=_vectors(size, Streams(seed))))
    place = RunFolder.create(folder / "run", config)
    with open_session(run, place) as session:
        continue_run(session, 1)
    apart = max(1, size.clients // size.answers)
    for client in run.population.clients[::apart][: size.answers]:
        signed: list[tuple[float, float]] = []

        def note(
            _: AnsweredRequest, signed: list[tuple[float, float]] = signed
        ) -> None:
            signed.append((time.perf_counter(), time.process_time()))

        began = time.perf_counter(), time.process_time()
        _, (answer,) = forget(run, place, [client.name], "subtract", on_answer=note)
        checks = Run(place.path).verify(answer.answered.proof)
        yield Waited(
            signed[0][0] - began[0],
            signed[0][1] - began[1],
            tuple(each.name for each in checks if each.ok is False),
        )


def _config(folder: Path, seed: int) -> Config:
    return Config.of(
        {
            "seed": seed,
            "rounds": 2,
            "population": {"holdout": 0.0},
            "model": {"name": "linear-head", "options": {"features": "none"}},
            "method": {
                "name": "solved",
                "num_clusters": 2,
                "initialisation": "random",
            },
            "redteam": {"source": "none"},
            "secrets": {
                "source": "seeded",
                "key_path": str(folder / "signing-key.pem"),
            },
        }
    )


def _vectors(
    size: SubtractionSize, streams: Streams
) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    generator = streams.at("vectors").generator()
    shape = (size.clients, size.records)
    inputs = generator.random((*shape, size.features), dtype="float32") * 2 - 1
    labels = generator.integers(CLASSES, size=shape)
    return {
        f"client-{i:05d}": (torch.from_numpy(inputs[i]), torch.from_numpy(labels[i]))
        for i in range(size.clients)
    }
