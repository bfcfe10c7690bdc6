"""The two sums through which clients' data reach a ridge head, and its closed form.

Features lie on a grid, so that the sums are of whole numbers: below 2^53 these have no
rounding in float64, whatever their order. So sums over clients are equal to the last bit in
any order, and so are sums from which a client was taken off again.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise

import torch
from jaxtyping import Bool, Float, Float32, Float64, Int16, Int64
from torch import Tensor

from covey.base.errors import ModelError

FEATURE_STEPS = 2**10
"""Steps of the grid in a feature's unit: a feature is a multiple of 2^-10, in +-32."""

EXACT = 2.0**53
"""Whole numbers below it are exact in float64, and so are their sums."""

LARGEST = 2**15 - 1
MIN_SPREAD = 16 / FEATURE_STEPS


def feature_grid(features: Float[Tensor, "rows d"]) -> Int16[Tensor, "rows d_and_one"]:
    """Return features in steps of the grid, with a last one that is always 1: the bias.

    Raises:
        ModelError: they are not finite, or too small for the grid.
    """
    if not features.isfinite().all():
        raise ModelError(
            "A feature map must return finite numbers, found others. Correct it, or the examples."
        )
    largest = float(features.abs().max()) if features.numel() else 1.0
    if largest < MIN_SPREAD:
        raise ModelError(
            f"Features must be of the order of 1, as their sums count steps of "
            f"{1 / FEATURE_STEPS:.4f}, found none above {largest:.2g}. Scale them."
        )
    steps = (features * FEATURE_STEPS).round_().clamp_(-LARGEST, LARGEST)
    bias = torch.full((len(steps), 1), float(FEATURE_STEPS))
    return torch.cat([steps, bias.to(steps)], dim=1).to(torch.int16)


BLOCKS = 8
"""More of them leave more out, in smaller products that each take longer."""


def blocks(d: int) -> Iterator[tuple[int, int]]:
    """Yield where each block of d rows or columns starts and ends; none is empty."""
    edges = [d * b // BLOCKS for b in range(BLOCKS + 1)]
    return ((start, end) for start, end in pairwise(edges) if end > start)


CHUNK = 4_096
"""Rows that are multiplied at a time: bounds the memory, not the result."""


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """One client's records.

    Attributes:
        features: in steps of the grid, the bias last (`feature_grid`).
        labels: the class of each record.
    """

    features: Int16[Tensor, "rows d"]
    labels: Int64[Tensor, " rows"]

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """Sums over records r of clients i, in whole steps of the grid, so without rounding.

        A = sum_i sum_r phi_r phi_r^T        B = sum_i sum_r phi_r onehot(y_r)^T

    Attributes:
        gram: the lower half of A, row by row, in steps of 2^-20.
        targets: B, in steps of 2^-10.
    """

    gram: Int64[Tensor, " half"]
    targets: Int64[Tensor, "d classes"]

    @classmethod
    def nothing(cls, d: int, classes: int) -> "Sums":
        """Return the sums over no clients."""
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
        hashed = hashlib.sha256(self.gram.numpy().data)
        hashed.update(self.targets.contiguous().numpy().tobytes())
        return hashed.hexdigest()

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
        lower = half / FEATURE_STEPS**2
        for side in (gram, gram.T):
            side.masked_scatter_(_half(d), lower)
        mean = gram[:, -1:] / classes
        return gram, targets / FEATURE_STEPS - mean


def sums_of(clients: Iterable[Rows], d: int, classes: int) -> Sums:
    """Return the sums over these clients' records.

    Raises:
        ModelError: they are too large to be exact.
    """
    gram = torch.zeros(d, d, dtype=torch.float64)
    targets = torch.zeros(d, classes, dtype=torch.float64)
    for features, labels in _chunks(clients):
        onehot = torch.nn.functional.one_hot(labels, classes).double()
        for top, bottom in blocks(d):  # nothing reads what is above the blocks of the diagonal
            gram[top:bottom, :bottom].addmm_(features[:, top:bottom].T, features[:, :bottom])
        targets.addmm_(features.T, onehot)
        _check_exact(float(gram.diagonal().max()))
    return Sums(gram[_half(d)].long(), targets.long())


def _chunks(clients: Iterable[Rows]) -> Iterable[tuple[Tensor, Tensor]]:
    """Yield features and labels of so many rows at a time."""
    waiting: list[Rows] = []
    for client in clients:
        waiting.append(client)
        if sum(map(len, waiting)) >= CHUNK:
            yield from _joined(waiting)
            waiting = []
    yield from _joined(waiting)


def _joined(clients: list[Rows]) -> Iterable[tuple[Tensor, Tensor]]:
    if not clients:
        return
    features = torch.cat([c.features for c in clients])
    labels = torch.cat([c.labels for c in clients])
    for start in range(0, len(labels), CHUNK):
        part = slice(start, start + CHUNK)
        yield features[part].double(), labels[part]


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


@dataclass(frozen=True, eq=False)
class Head:
    """theta = M^-1 B, with what shows how much each record contributes to it.

    Attributes:
        theta: the weights, the bias last.
        lower: L with L L^T = M.
    """

    theta: Float64[Tensor, "d classes"]
    lower: Float64[Tensor, "d d"]

    @cached_property
    def root(self) -> Float32[Tensor, "d d"]:
        """R with R R^T = M^-1, upper triangular: a record's leverage is |phi R|^2."""
        d = len(self.lower)
        root = torch.zeros(d, d)
        for start, end in blocks(d):  # the columns of L^-1 are 0 above the diagonal
            one = torch.eye(d - start, end - start, dtype=torch.float64)
            below = self.lower[start:, start:]
            columns = torch.linalg.solve_triangular(below, one, upper=False)
            root[start:end, start:] = columns.T
        return root


@dataclass(frozen=True, eq=False)
class SentHead:
    """What a client needs of a head to know it without itself.

    Attributes:
        theta: as `Head.theta`; column by column in memory, like that one, so that products
            with it are the same to the last bit.
        root: as `Head.root`; without numbers where the head never met the client.
    """

    theta: Float32[Tensor, "d classes"]
    root: Float32[Tensor, "_ _"]

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor, root: Tensor | None) -> "SentHead":
        """Return the head of a model's last layer."""
        theta = torch.cat([weight, bias[:, None]], dim=1).T
        return cls(theta, torch.empty(0, 0) if root is None else root)


def solved_head(own: Sums, others: Sums, pooling: float, regularisation: float) -> Head:
    """Return the head of a cluster.

        theta_j = (A_j + gamma A_rest + lambda m I)^-1 (B_j + gamma B_rest)

    Args:
        own: A_j and B_j.
        others: A_rest and B_rest, of all other clusters.
        pooling: gamma in [0, 1]; 0: own data alone, 1: everybody's alike.
        regularisation: lambda > 0, in units of m, the mean diagonal of A_j + A_rest.

    Raises:
        ModelError: there is nothing to solve, or no number to solve it with.
    """
    system, targets = own.matrices(others, pooling)
    system.diagonal().add_(regularisation * unit_of(own, others))
    try:
        lower: Tensor = torch.linalg.cholesky(system)  # pyright: ignore[reportUnknownMemberType]
    except RuntimeError as error:
        raise ModelError(
            f"A head needs a regularisation with which it can be solved, found "
            f"{regularisation}. Raise it."
        ) from error
    return Head(torch.cholesky_solve(targets, lower), lower)


def unit_of(own: Sums, others: Sums) -> float:
    """Return m, the mean diagonal of A_j + A_rest; 1 where there is no client."""
    diagonal = diagonal_of(len(own.targets))
    both = (own.gram[diagonal] + others.gram[diagonal]).double()
    return float(both.mean()) / FEATURE_STEPS**2 or 1.0


def diagonal_of(d: int) -> Int64[Tensor, " d"]:
    """Return where the diagonal stands in the lower half, row by row."""
    ends = torch.arange(1, d + 1)
    return ends * (ends + 1) // 2 - 1


TOLERANCE = 1e-9
"""How far below 0 an eigenvalue may be, in units of the largest diagonal."""


def fault_of(sums: Sums, records: int) -> str:
    """Return why these are no sums over so many records; "" if they may be.

    With s = [phi; onehot], sum_r s s^T = [A, B; B^T, diag(n)]: no eigenvalue is below 0. So
    sums that pass are, up to the tolerance, those of some real features.
    """
    gram, targets = sums.gram, sums.targets
    if _beyond(gram, LARGEST**2 * records) or _beyond(targets, LARGEST * records):
        return f"its sums must be of features of at most {LARGEST} steps"
    if int(gram[-1]) != FEATURE_STEPS**2 * records:
        return f"its sums must be over the {records} examples that it announced"
    return _fault_of_classes(sums) or (
        "" if _is_square(sums) else "its sums must be sums of squares"
    )


def fault_of_total(sums: Sums) -> str:
    """Return why these are no sums over any records; "" if they may be."""
    records, rest = divmod(int(sums.gram[-1]), FEATURE_STEPS**2)
    if rest or records < 1:
        return "its sums must be over whole examples"
    return fault_of(sums, records)


def fault_of_mean(mean: Tensor) -> str:
    """Return why this is no mean of features in steps; "" if it may be."""
    fits = bool((mean.abs() <= LARGEST).all()) and float(mean[-1]) == FEATURE_STEPS
    return "" if fits else f"its mean must be of features of at most {LARGEST} steps"


def _fault_of_classes(sums: Sums) -> str:
    """Return why the sums by class do not fit to the others."""
    bias, counts = sums.gram[-len(sums.targets) :], sums.targets[-1]
    if bool((counts < 0).any() | (counts % FEATURE_STEPS).any()):
        return "its sums must count whole examples of each class"
    if not torch.equal(sums.targets.sum(dim=1) * FEATURE_STEPS, bias):
        return "its sums over classes must add up to those over all its examples"
    return ""


def _beyond(numbers: Int64[Tensor, "..."], most: int) -> bool:
    low, high = numbers.aminmax()
    return int(low) < -most or int(high) > most


def _is_square(sums: Sums) -> bool:
    """Say whether the sums over features and classes together have no direction below 0."""
    d, classes = sums.targets.shape
    whole = torch.zeros(d + classes, d + classes, dtype=torch.float64)
    whole[:d, :d].masked_scatter_(_half(d), sums.gram.double())
    whole[d:, :d] = sums.targets.T.double() * FEATURE_STEPS
    counts = sums.targets[-1].double() * FEATURE_STEPS
    whole.diagonal()[d:] = counts
    largest = float(sums.gram[diagonal_of(d)].max())
    whole.diagonal().add_(TOLERANCE * largest)
    return int(torch.linalg.cholesky_ex(whole).info) == 0
