"""The federations whose leaver is to be forgotten: data and settings.

Handwritten digits: ten clients with any of them, and the leaver, three fifths of whose
30 images are said to be fives. Half of these are not. A model that never met it
gets these labels wrong, so it matters whether it is forgotten.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch

from covey.data import Examples
from covey.rng import Streams

__all__ = [
    "FORGETTING",
    "LABEL",
    "LEAVER",
    "ForgettingData",
    "ForgettingSet",
    "forgetting_data",
]

Settings = Mapping[str, Any]

LEAVER, LABEL, CLASSES = "client-00003", 5, 10
OTHERS, EACH, FRESH, TEST = 10, 30, 120, 600
TOGETHER = ("client-00000", "client-00001", "client-00002", LEAVER)
"""Who leaves where several leave in one answer."""


@dataclass(frozen=True, slots=True)
class ForgettingSet:
    """One federation, and the answers that its leaver is given.

    Attributes:
        changed: settings that an answer needs beside it; they change no model.
        together: answers that are also given to several leavers at once.
    """

    name: str
    settings: Settings
    answers: tuple[str, ...]
    changed: Mapping[str, Settings]
    together: tuple[str, ...] = ()


BASE: Settings = {
    "rounds": 8,
    "population": {"holdout": 0.0, "audit_examples": 0},
    "model": {"name": "mlp"},
    "method": {"name": "fedavg"},
    "train": {"local_epochs": 5, "batch_size": 10, "momentum": 0.9},
    "redteam": {"source": "none"},
    "engine": {"name": "vmap", "workers": 1},
}
SETS: Settings = {
    "name": "anonymity-sets",
    "min_anonymity": 3,
    "deniability_threshold": 2,
    "partition": "public-random",
}
SOLVED: Settings = {
    "rounds": 2,
    "model": {
        "name": "linear-head",
        "options": {
            "features": "random-patches",
            "feature_options": {"filters": 20, "size": 3, "pool": 2},
        },
    },
    "method": {"name": "solved", "num_clusters": 1, "initialisation": "random"},
    "engine": {"workers": 1},
}
FORGETTING = (
    ForgettingSet(
        "anonymity sets",
        BASE | {"merge": SETS},
        ("deny", "roll_back", "retrain"),
        # A denial leaves 2 of 3 members. If 3 must stay, a set of 3 cannot lose any, so
        # that runs go back to the first such set; models do not depend on this.
        {"roll_back": {"merge": {**SETS, "deniability_threshold": 3}}},
    ),
    ForgettingSet(
        "stored updates",
        BASE | {"unlearning": {"store_updates": 1}},
        ("calibrate", "retrain"),
        {},
    ),
    ForgettingSet(
        "solved heads", BASE | SOLVED, ("subtract", "retrain"), {}, ("subtract",)
    ),
)


@dataclass(frozen=True, slots=True, eq=False)
class ForgettingData:
    """Who holds what.

    Attributes:
        clients: the leaver among them.
        fresh: like the leaver's, and nobody's.
        test: nobody's either, with their true labels.
    """

    clients: Mapping[str, Examples]
    fresh: Examples
    test: Examples

    def brought(self, without: frozenset[str] = frozenset()) -> dict[str, Any]:
        """Return the clients' examples as a run takes them, of all but these."""
        return {
            name: (each.inputs, each.labels)
            for name, each in self.clients.items()
            if name not in without
        }


@cache
def forgetting_data() -> ForgettingData:
    """Deal the digits: the same to everybody in every run."""
    images = _digits()
    order = Streams(0).at("digits").generator().permutation(len(images))
    images = images.take(torch.from_numpy(order))
    fives = images.take((images.labels == LABEL).nonzero()[:, 0])
    rest = images.take((images.labels != LABEL).nonzero()[:, 0])
    leaver, fives, rest = _odd(EACH, fives, rest)
    fresh, fives, rest = _odd(FRESH, fives, rest)
    left = Examples.joined([fives, rest])
    again = Streams(0).at("others").generator().permutation(len(left))
    left = left.take(torch.from_numpy(again))
    names = [f"client-{i:05d}" for i in range(OTHERS + 1)]
    dealt = zip(
        (name for name in names if name != LEAVER),
        (_part(left, i * EACH, EACH) for i in range(OTHERS)),
        strict=True,
    )
    clients = {**dict(dealt), LEAVER: leaver}
    return ForgettingData(
        {name: clients[name] for name in names},
        fresh,
        _part(left, OTHERS * EACH, TEST),
    )


def _digits() -> Examples:
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    scaled = np.rint(pixels * (255 / 16)).astype(np.uint8)
    images = torch.from_numpy(scaled).view(-1, 1, 8, 8)
    return Examples(images, torch.from_numpy(labels.astype(np.int64)))


def _odd(
    count: int, fives: Examples, rest: Examples
) -> tuple[Examples, Examples, Examples]:
    """Return examples as the leaver has them, and what is left of both sorts."""
    true, false, usual = 3 * count // 10, 3 * count // 10, 4 * count // 10
    said = Examples(rest.inputs[:false], torch.full((false,), LABEL))
    own = [fives.first(true), said, _part(rest, false, usual)]
    return (
        Examples.joined(own),
        _part(fives, true, len(fives)),
        _part(rest, false + usual, len(rest)),
    )


def _part(examples: Examples, first: int, count: int) -> Examples:
    last = min(first + count, len(examples))
    return examples.take(torch.arange(first, last))
