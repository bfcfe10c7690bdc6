"""Sums over clients' records, through which alone their data reach a ridge head.

Features lie on a grid, so that the sums are of whole numbers: below 2^53 these have no
rounding in float64, whatever their order. So sums over clients are equal to the last bit in
any order, and so are sums from which a client was taken off again. What somebody sent is
checked, and under masks no two sums reveal those of few clients.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int16, Int64
from torch import Tensor

from covey.base.component_state import ComponentState
from covey.base.errors import ModelError
from covey.base.events import ClientsWaited
from covey.base.names import Handle
from covey.secure_sums.noise import RING
from covey.secure_sums.server import secure_sum

FEATURE_STEPS = 2**10
"""Steps of the grid in a feature's unit: a feature is a multiple of 2^-10, in +-32."""

EXACT = 2.0**53
"""Whole numbers below it are exact in float64, and so are their sums."""

LARGEST = 2**15 - 1
MIN_SPREAD = 16 / FEATURE_STEPS

BLOCKS = 8
"""More of them leave more out, in smaller products that each take longer."""

CHUNK = 4_096
"""Rows that are multiplied at a time: bounds the memory, not the result."""

TOLERANCE = 1e-9
"""How far below 0 an eigenvalue may be, in units of the largest diagonal."""

IN_NONE = -1


def feature_grid(features: Float[Tensor, "rows d"]) -> Int16[Tensor, "rows d_and_one"]:
    """Return features in steps of the grid, with a last one that is always 1: the bias.

    Raises:
        ModelError: they are not finite, or too small for the grid.
    """
    if not features.isfinite().all():
        raise ModelError(
            "A feature map must return finite numbers, found others: correct it, or the examples."
        )
    largest = float(features.abs().max()) if features.numel() else 1.0
    if largest < MIN_SPREAD:
        raise ModelError(
            f"Features must be of the order of 1, as their sums count steps of "
            f"{1 / FEATURE_STEPS:.4f}, found none above {largest:.2g}: scale them."
        )
    steps = (features * FEATURE_STEPS).round_().clamp_(-LARGEST, LARGEST)
    bias = torch.full((len(steps), 1), float(FEATURE_STEPS))
    return torch.cat([steps, bias.to(steps)], dim=1).to(torch.int16)


def blocks(d: int) -> Iterator[tuple[int, int]]:
    """Yield where each block of d rows or columns starts and ends; none is empty."""
    edges = [d * b // BLOCKS for b in range(BLOCKS + 1)]
    return ((start, end) for start, end in pairwise(edges) if end > start)


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
        return hashlib.sha256(self.numbers().data).hexdigest()

    def numbers(self) -> Int64[np.ndarray, " numbers"]:
        """Return all numbers in a row, as they are added up under masks."""
        return torch.cat([self.gram, self.targets.flatten()]).numpy()

    @classmethod
    def of_numbers(cls, numbers: Int64[np.ndarray, " numbers"], d: int, classes: int) -> "Sums":
        """Undo `numbers`."""
        gram, targets = torch.from_numpy(numbers).split([d * (d + 1) // 2, d * classes])
        return cls(gram, targets.reshape(d, classes))

    @property
    def diagonal(self) -> Int64[Tensor, " d"]:
        """The diagonal of A."""
        ends = torch.arange(1, len(self.targets) + 1)
        return self.gram[ends * (ends + 1) // 2 - 1]

    @property
    def largest(self) -> float:
        """What no entry of A is above."""
        return float(self.diagonal.max())

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
            side.masked_scatter_(half_of(d), lower)
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
    return Sums(gram[half_of(d)].long(), targets.long())


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
            f"Sums over clients must stay below 2^53 steps to be exact, found {largest:.3g}: scale "
            f"the features down, or have fewer records."
        )


@cache
def half_of(d: int) -> Bool[Tensor, "d d"]:
    """Say what is on and below the diagonal; row by row it is kept."""
    return torch.ones(d, d, dtype=torch.bool).tril()


def fault_of(sums: Sums, records: int | None = None) -> str:
    """Return why these are no sums over so many records, or over any; "" if they may be.

    With s = [phi; onehot], sum_r s s^T = [A, B; B^T, diag(n)]: no eigenvalue is below 0. So
    sums that pass are, up to the tolerance, those of some real features.
    """
    gram, targets = sums.gram, sums.targets
    if records is None:
        records, rest = divmod(int(gram[-1]), FEATURE_STEPS**2)
        if rest or records < 1:
            return "its sums must be over whole examples"
    if _beyond(gram, LARGEST**2 * records) or _beyond(targets, LARGEST * records):
        return f"its sums must be of features of at most {LARGEST} steps"
    if int(gram[-1]) != FEATURE_STEPS**2 * records:
        return f"its sums must be over the {records} examples that it announced"
    return _fault_of_classes(sums) or (
        "" if _is_square(sums) else "its sums must be sums of squares"
    )


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
    whole[:d, :d].masked_scatter_(half_of(d), sums.gram.double())
    whole[d:, :d] = sums.targets.T.double() * FEATURE_STEPS
    counts = sums.targets[-1].double() * FEATURE_STEPS
    whole.diagonal()[d:] = counts
    whole.diagonal().add_(TOLERANCE * sums.largest)
    return int(torch.linalg.cholesky_ex(whole).info) == 0


class SumCohorts(ComponentState):
    """Which clients were in one sum: their nodes open no other that overlaps it.

    Attributes:
        cohorts: of everybody who is in some sum, a number that it shares with those.
    """

    key = "sum-cohorts"
    cohorts: Mapping[Handle, int] = {}

    def groups(self, clients: Iterable[Handle], minimum: int) -> tuple[frozenset[Handle], ...]:
        """Return who of these may be summed: whole cohorts, and enough who are in none.

        Args:
            clients: whose sums are to be counted.
            minimum: the fewest clients that a sum may be over.
        """
        sizes = Counter(self.cohorts.values())
        groups = defaultdict[int, set[Handle]](set)
        for handle in clients:
            groups[self.cohorts.get(handle, IN_NONE)].add(handle)
        large = (own for at, own in groups.items() if len(own) >= max(minimum, sizes[at]))
        return tuple(sorted(map(frozenset, large), key=min))

    def waiting(self, clients: Collection[Handle], minimum: int) -> tuple[ClientsWaited, ...]:
        """Return the fact about the others of these, until they are enough."""
        others = frozenset(clients).difference(*self.groups(clients, minimum))
        return (ClientsWaited(tuple(sorted(others)), minimum),) if others else ()

    def with_groups(self, groups: Iterable[frozenset[Handle]]) -> "SumCohorts":
        """Return the cohorts after sums over these groups."""
        cohorts = dict(self.cohorts)
        for number, group in enumerate(groups, max(cohorts.values(), default=IN_NONE) + 1):
            cohorts.update(dict.fromkeys(group, number))
        return SumCohorts(cohorts=cohorts)


def masked_sums(
    clients: Mapping[Handle, Callable[[], Sums]], shape: tuple[int, int], minimum: int
) -> Sums:
    """Return the sums over these clients, each of which sends its own under masks.

    Args:
        clients: what makes each one's sums.
        shape: d, and how many classes there are.
        minimum: the fewest clients that a sum may be over.

    Raises:
        RoundGivenUpError: they are fewer.
        ModelError: the sums are too large to be exact.
    """
    nothing = Sums.nothing(*shape)

    def numbers(own: Callable[[], Sums]) -> Int64[np.ndarray, " numbers"]:
        sums = own()
        if int(sums.gram.max()) * len(clients) >= RING:
            raise ModelError(
                f"Under masks, a client's sums must stay below 2^63 / clients, found "
                f"{int(sums.gram.max())} of {len(clients)} clients: scale features, or have fewer "
                f"records."
            )
        return sums.numbers()

    sending = {handle: partial(numbers, own) for handle, own in clients.items()}
    total = secure_sum(sending, len(nothing.numbers()), minimum).values
    return nothing + Sums.of_numbers(total, *shape)
