"""The federations that colluding clients attack: data, and nothing but data.

Twenty clients with 40 handwritten digits each; four of them, the minority, hold theirs
rotated.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from covey.components import reference
from covey_papers.bench.attacks import AGAINST_MINORITY, ATTACKS, Flooded

__all__ = [
    "BASE",
    "MERGES",
    "METHODS",
    "ON_MINORITY",
    "POISONING",
    "QUICK_POISONING",
    "Cell",
    "Merge",
    "Poisoning",
    "cells",
]

DEPLOYED = "geometric-median"
"""How deployments merge updates where the settings say nothing of it."""

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
        method: of training, one of `METHODS`.
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
        more: method, attack and share that are played beside FedAvg's.
        merges: by which each is played.
    """

    attacks: tuple[str, ...]
    shares: tuple[float, ...]
    seeds: tuple[int, ...]
    rounds: int
    more: tuple[tuple[str, str, float], ...] = ()
    merges: tuple[str, ...] = tuple(MERGES)


POISONING = Poisoning(
    attacks=tuple(name for name in ATTACKS if name not in ("none", AGAINST_MINORITY)),
    shares=(0.1, 0.2, 0.3),
    seeds=(0, 1),
    rounds=15,
    more=(
        ("ifca", "none", 0.0),
        ("ifca", "replacement", 0.2),
        ("fedavg", AGAINST_MINORITY, 0.3),
        ("flooded ifca", "a little is enough", 0.2),
    ),
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
IFCA: Settings = {"name": "ifca", "initialisation": "groups"}
BOUND: Settings = {"max_newcomers": 0.25}
GROUPS: Settings = {"initialisation": "groups"}
FLOODED: Settings = {"name": reference(Flooded), "options": GROUPS}
BOUNDED_FLOOD: Settings = {**FLOODED, "options": {**GROUPS, **BOUND}}
METHODS: Mapping[str, Settings] = {
    "fedavg": {"name": "fedavg"},
    "ifca": IFCA,
    "bounded ifca": {**IFCA, **BOUND},
    "flooded ifca": FLOODED,
    "flooded bounded ifca": BOUNDED_FLOOD,
    "founded bounded ifca": BOUNDED_FLOOD,
    "warm ifca": {"name": "ifca"},
    "bounded warm ifca": {"name": "ifca", **BOUND},
    "random ifca": {"name": "ifca", "initialisation": "random"},
    "bounded random ifca": {"name": "ifca", "initialisation": "random", **BOUND},
}
"""Clusters start from the known groups where nothing else is said. *Flooded*: colluders
choose the minority's cluster from the first choice on; *founded*: they are in it from
round 0 on; *bounded*: with `method.max_newcomers`."""

FLOODS = ("replacement", "sign flip", "a little is enough")
ON_MINORITY = Poisoning(
    attacks=(),
    shares=(),
    seeds=(0, 1, 2),
    rounds=15,
    more=(
        ("fedavg", AGAINST_MINORITY, 0.3),
        ("ifca", "none", 0.0),
        ("bounded ifca", "none", 0.0),
        ("ifca", AGAINST_MINORITY, 0.3),
        *(("flooded ifca", attack, 0.2) for attack in FLOODS),
        *(("flooded bounded ifca", attack, 0.2) for attack in FLOODS),
        ("founded bounded ifca", "a little is enough", 0.2),
        ("warm ifca", "none", 0.0),
        ("bounded warm ifca", "none", 0.0),
        ("random ifca", "none", 0.0),
        ("bounded random ifca", "none", 0.0),
    ),
    merges=(DEPLOYED,),
)
"""The attacks on a minority, and what a bound on newcomers gains and costs."""


def cells(bench: Poisoning) -> tuple[Cell, ...]:
    """Return every federation of the bench; without colluders all attacks are one."""
    attacked = [(a, s) for a in bench.attacks for s in bench.shares]
    played = [("fedavg", *each) for each in (("none", 0.0), *attacked)]
    played += bench.more
    return tuple(
        Cell(merge, attack, share, method, seed)
        for method, attack, share in played
        for merge in bench.merges
        for seed in bench.seeds
    )
