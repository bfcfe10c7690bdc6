"""The federations that colluding clients attack: data, and nothing but data.

Twenty clients with 40 handwritten digits each; four of them, the minority, hold theirs
rotated.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from covey_papers.bench.attacks import ATTACKS

__all__ = [
    "BASE",
    "MERGES",
    "METHODS",
    "POISONING",
    "QUICK_POISONING",
    "Cell",
    "Merge",
    "Poisoning",
    "cells",
]

Settings = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Merge:
    """An aggregation and its options."""

    name: str
    options: Settings = field(default_factory=dict[str, Any])


SETS: Settings = {"min_anonymity": 4, "deniability_threshold": 3}
BY_MEDIAN: Settings = {"max_relative_norm": 1.0}

MERGES: Mapping[str, Merge] = {
    "mean": Merge("mean"),
    "norm-bounded": Merge("norm-bounded", BY_MEDIAN),
    "median": Merge("median"),
    "trimmed-mean": Merge("trimmed-mean", {"trim": 0.3}),
    "geometric-median": Merge("geometric-median"),
    "multi-krum": Merge("krum", {"outliers": 6, "chosen": 12}),
    "anonymity-sets": Merge("anonymity-sets", SETS),
    "bounded sets": Merge("anonymity-sets", {**SETS, **BY_MEDIAN}),
}
"""What is compared. All that bound how many may lie are set for 30% of the clients."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One federation: how updates are merged, who attacks it, and from which seed.

    Attributes:
        share: of the clients that collude.
        method: of training: one model, or clusters.
    """

    merge: str
    attack: str
    share: float
    method: str
    seed: int


@dataclass(frozen=True, slots=True)
class Poisoning:
    """What is played.

    Attributes:
        clustered: attack and share that are also played in clusters (IFCA, groups known).
    """

    attacks: tuple[str, ...]
    shares: tuple[float, ...]
    seeds: tuple[int, ...]
    rounds: int
    clustered: tuple[tuple[str, float], ...] = ()


POISONING = Poisoning(
    attacks=tuple(name for name in ATTACKS if name != "none"),
    shares=(0.1, 0.2, 0.3),
    seeds=(0, 1),
    rounds=15,
    clustered=(("none", 0.0), ("replacement", 0.2)),
)
QUICK_POISONING = Poisoning(("sign flip", "replacement"), (0.2,), (0,), 10)

BASE: Settings = {
    "population": {
        "clients": 20,
        "examples_per_client": 40,
        "minority_share": 0.2,
        "holdout": 0.0,
        "audit_examples": 0,
    },
    "model": {"name": "mlp"},
    "train": {"local_epochs": 3, "momentum": 0.9},
    "redteam": {"source": "none"},
    "engine": {"name": "vmap"},  # many small clients at once: three times as fast
}
METHODS: Mapping[str, Settings] = {
    "fedavg": {"name": "fedavg"},
    "ifca": {"name": "ifca", "initialisation": "groups"},
}


def cells(bench: Poisoning) -> tuple[Cell, ...]:
    """Return every federation of the bench; without colluders all attacks are one."""
    attacked = [(a, s) for a in bench.attacks for s in bench.shares]
    played = [("fedavg", *each) for each in (("none", 0.0), *attacked)]
    played += [("ifca", *each) for each in bench.clustered]
    return tuple(
        Cell(merge, attack, share, method, seed)
        for method, attack, share in played
        for merge in MERGES
        for seed in bench.seeds
    )
