"""The federations that the red team is judged on: data, and nothing but data."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["FULL", "QUICK", "BenchSet"]

Settings = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class BenchSet:
    """One federation, and the rounds before which its cluster models are looked at."""

    name: str
    settings: Settings
    looks: tuple[int, ...]


GROUPS_KNOWN = {"name": "ifca", "initialisation": "groups"}
"""Clusters as large as their groups; clients choose after a quarter of `rounds`."""

HARD = {"batch_size": 10, "learning_rate": 0.03, "momentum": 0.9}
"""Training that learns by heart what is little and hard."""

DIGITS: Settings = {
    "rounds": 30,
    "train": {"local_epochs": 5, "momentum": 0.9},
    "method": GROUPS_KNOWN,
}
DIGITS_TWELVE: Settings = {
    "rounds": 12,
    "population": {"clients": 12, "examples_per_client": 40, "minority_share": 0.3},
    "model": {"name": "mlp"},
    "train": {"local_epochs": 5, "momentum": 0.9},
    "method": GROUPS_KNOWN,
}
CIFAR_SMALL: Settings = {
    "rounds": 16,
    "data": {"name": "cifar10"},
    "population": {
        "clients": 40,
        "examples_per_client": 62,
        "audit_examples": 2000,
        "shift": "brightness",
        "minority_share": 0.2,
        "minority": [0.5, 0.8],
        "majority": [0.9, 1.2],
    },
    "train": {**HARD, "local_epochs": 5},
    "method": GROUPS_KNOWN,
}
CIFAR_BRIGHTNESS: Settings = {
    "rounds": 16,
    "data": {"name": "cifar10"},
    "population": {
        "clients": 40,
        "examples_per_client": 250,
        "audit_examples": 2000,
        "shift": "brightness",
        "minority_share": 0.1,
        "minority": [-1.2, -0.9],
        "majority": [0.9, 1.2],
    },
    "train": HARD,
    "method": GROUPS_KNOWN,
}
FASHION: Settings = {
    "rounds": 16,
    "data": {"name": "fashion-mnist"},
    "population": {
        "clients": 60,
        "examples_per_client": 50,
        "audit_examples": 2000,
        "minority_share": 0.15,
    },
    "train": {**HARD, "local_epochs": 3},
    "method": GROUPS_KNOWN,
}
MNIST: Settings = {
    "rounds": 16,
    "data": {"name": "mnist"},
    "population": {
        "clients": 200,
        "examples_per_client": 250,
        "audit_examples": 2000,
        "minority_share": 0.15,
    },
    "method": GROUPS_KNOWN,
    "engine": {"workers": 2},
}

EACH = (2, 3, 4, 5, 6, 7, 8)
"""The rounds before which the models are looked at; the last one ends the bench."""

LATER = (2, 4, 6, 8, 10, 12, 14)
"""The same for a federation whose risk goes on rising, to see the high ones too."""

QUICK = (
    BenchSet("digits", DIGITS, (5,)),
    BenchSet("digits, 12 clients", DIGITS_TWELVE, (4, 8)),
)
FULL = (
    BenchSet("digits", DIGITS, (5, 10, 15, 20, 25, 30)),
    BenchSet("cifar-small", CIFAR_SMALL, LATER),
    BenchSet("CIFAR-10, 40 x 250", CIFAR_BRIGHTNESS, EACH),
    BenchSet("Fashion-MNIST, 60 x 50", FASHION, EACH),
    BenchSet("MNIST, 200 x 250", MNIST, (2, 3, 4)),
)
