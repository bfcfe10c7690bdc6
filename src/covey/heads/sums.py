"""The two sums through which clients' data reach a head, and nothing else does."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

import torch
from jaxtyping import Bool, Float64, Int16, Int64
from torch import Tensor

from covey.errors import ModelError
from covey.heads.blocks import blocks
from covey.heads.grid import EXACT, FEATURE_STEPS, WEIGHT_STEPS

__all__ = ["Rows", "Sums", "sums_of"]

CHUNK = 4_096
"""Rows that are multiplied at a time: bounds the memory, not the result."""


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """One client's records.

    Attributes:
        features: in steps of the grid, the bias last (`feature_grid`).
        labels: the class of each record.
        weight: how much they enter, in steps of its grid (`weight_steps`).
    """

    features: Int16[Tensor, "rows d"]
    labels: Int64[Tensor, " rows"]
    weight: int = WEIGHT_STEPS

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """Sums over records r of clients i, in whole steps of the grid, so without rounding.

        A = sum_i w_i sum_r phi_r phi_r^T        B = sum_i w_i sum_r phi_r onehot(y_r)^T

    Attributes:
        gram: the lower half of A, row by row: 2^-28 is 1.
        targets: B: 2^-18 is 1.
    """

    gram: Int64[Tensor, " half"]
    targets: Int64[Tensor, "d classes"]

    @classmethod
    def nothing(cls, d: int, classes: int) -> "Sums":
        """Return the sums over nobody."""
        half = torch.zeros(d * (d + 1) // 2, dtype=torch.int64)
        return cls(half, torch.zeros(d, classes, dtype=torch.int64))

    def __add__(self, other: "Sums") -> "Sums":
        """Return the sums over both.

        Raises:
            ModelError: they are too large to be exact.
        """
        both = Sums(self.gram + other.gram, self.targets + other.targets)
        _check_exact(float(both.gram.max()) if len(both.gram) else 0.0)
        return both

    def __sub__(self, other: "Sums") -> "Sums":
        """Return the sums over those of the first who are not of the second."""
        return Sums(self.gram - other.gram, self.targets - other.targets)

    def times(self, steps: int) -> "Sums":
        """Return these sums so many times."""
        return Sums(self.gram * steps, self.targets * steps)

    def __eq__(self, other: object) -> bool:
        """Say whether all numbers are the same."""
        return (
            isinstance(other, Sums)
            and torch.equal(self.gram, other.gram)
            and torch.equal(self.targets, other.targets)
        )

    __hash__ = None  # type: ignore[assignment]

    def digest(self) -> str:
        """Return the SHA-256 of all numbers."""
        found = hashlib.sha256(self.gram.numpy().data)
        found.update(self.targets.contiguous().numpy().tobytes())
        return found.hexdigest()

    def matrices(
        self, others: "Sums | None" = None, share: float = 0.0
    ) -> tuple[Float64[Tensor, "d d"], Float64[Tensor, "d classes"]]:
        """Return A and B as they are, B with targets onehot(y) - 1 / classes.

        Args:
            others: whose sums are added to them, `share` times.
            share: 0 or 1 rounds nothing before the sums are complete.
        """
        d, classes = self.targets.shape
        half, targets = self.gram.double(), self.targets.double()
        if others is not None and share:
            half = half + share * others.gram.double()
            targets = targets + share * others.targets.double()
        gram = torch.zeros(d, d, dtype=torch.float64)
        lower = half / (FEATURE_STEPS**2 * WEIGHT_STEPS)
        for side in (gram, gram.T):
            side.masked_scatter_(_half(d), lower)
        mean = gram[:, -1:] / classes
        return gram, targets / (FEATURE_STEPS * WEIGHT_STEPS) - mean


def sums_of(clients: Iterable[Rows], d: int, classes: int) -> Sums:
    """Return the sums over these clients' records.

    Raises:
        ModelError: they are too large to be exact.
    """
    gram = torch.zeros(d, d, dtype=torch.float64)
    targets = torch.zeros(d, classes, dtype=torch.float64)
    for features, labels, weights in _chunks(clients):
        onehot = torch.nn.functional.one_hot(labels, classes).double()
        weighted = features * weights[:, None]
        _add_lower(gram, weighted, features)
        targets.addmm_(weighted.T, onehot)
        _check_exact(float(gram.diagonal().max()))
    return Sums(gram[_half(d)].long(), targets.long())


def _add_lower(gram: Tensor, left: Tensor, right: Tensor) -> None:
    """Add left^T right to the blocks on and below the diagonal; nobody reads the others."""
    for top, bottom in blocks(len(gram)):
        gram[top:bottom, :bottom].addmm_(left[:, top:bottom].T, right[:, :bottom])


def _chunks(clients: Iterable[Rows]) -> Iterable[tuple[Tensor, Tensor, Tensor]]:
    """Yield features, labels and weights of so many rows at a time."""
    waiting: list[Rows] = []
    for client in clients:
        waiting.append(client)
        if sum(map(len, waiting)) >= CHUNK:
            yield from _joined(waiting)
            waiting = []
    yield from _joined(waiting)


def _joined(clients: list[Rows]) -> Iterable[tuple[Tensor, Tensor, Tensor]]:
    if not clients:
        return
    features = torch.cat([c.features for c in clients])
    labels = torch.cat([c.labels for c in clients])
    weights = torch.cat(
        [torch.full((len(c),), float(c.weight), dtype=torch.float64) for c in clients]
    )
    for start in range(0, len(labels), CHUNK):
        part = slice(start, start + CHUNK)
        yield features[part].double(), labels[part], weights[part]


def _check_exact(largest: float) -> None:
    """Refuse sums that float64 may round; no entry of A is above its largest diagonal."""
    if largest >= EXACT:
        raise ModelError(
            f"The sums over clients must stay below 2^53 steps to be exact, found "
            f"{largest:.3g}. Scale the features down, or have fewer records."
        )


@cache
def _half(d: int) -> Bool[Tensor, "d d"]:
    """Say what is on and below the diagonal; row by row it is kept."""
    return torch.ones(d, d, dtype=torch.bool).tril()
