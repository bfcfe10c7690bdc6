"""Runs that take a part of a second, in a program and by their settings."""

from pathlib import Path
from typing import Any

from torch import Tensor, nn

import covey
from support.tiny import points_of

NAMES = tuple(f"client-{i:05}" for i in range(6))
ONE, TWO, THREE = NAMES[3], NAMES[1], NAMES[5]

PROGRAM = {
    "rounds": 2,
    "method.name": "fedavg",
    "risk.name": "none",
    "engine.name": "reference",
    "train.learning_rate": 0.5,
    "train.batch_size": 5,
    "population.audit_examples": 0,
}
SETS = {
    **PROGRAM,
    "aggregation.name": "anonymity-sets",
    "aggregation.min_anonymity": 3,
    "aggregation.deniability_threshold": 2,
}
RIDGE: dict[str, Any] = {
    "rounds": 2,
    "population": {"clients": 6, "examples_per_client": 12, "audit_examples": 0},
    "model": {"name": "linear-head", "features": {"filters": 4, "size": 3, "pool": 2}},
    "method": {
        "name": "ridge",
        "selection": "loss",
        "initialisation": "random",
        "regularisation": 0.5,
    },
    "risk": {"name": "none"},
}


def make_model() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 2))


def make_clients() -> dict[str, tuple[Tensor, Tensor]]:
    return points_of(NAMES)


def load(folder: Path) -> covey.Run:
    """Load a run as the program that began it does."""
    if folder.name == "ridge":
        return covey.load(folder)
    return covey.load(folder, lambda: make_model(), make_clients())


def play(root: Path) -> None:
    """Play the three runs: in a program, with sets, and of ridge heads."""
    covey.run(lambda: make_model(), make_clients(), PROGRAM, root / "program")
    covey.run(lambda: make_model(), make_clients(), SETS, root / "sets")
    covey.run(config=RIDGE, out=root / "ridge")
