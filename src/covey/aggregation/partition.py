"""Anonymity sets: how n points are divided so that each hides among at least k.

Every partition has C = floor(n/k) sets of k to 2k - 1 points. What needs distances takes
them from the inner products of the centred points: so it costs O(n^2 d) once, and shifting
all points by one vector (updates or models, it is the same) changes no set.

References:
    Varshney, Torra, Efficient Federated Unlearning under Plausible Deniability, 2024,
    Algorithm 1: "clusters based on some Delta parameter" (`sets_within`).
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from covey.aggregation.base import ClientUpdate
from covey.aggregation.server import Models
from covey.base.names import Distance, Handle, Params
from covey.base.params import flatten, trained
from covey.base.rng import Streams

LOOKED_AT = 2048
"""Points of which a direction is found; more would hardly turn it."""
STEPS = 12
"""Of the power iteration: a direction of wide spread is enough."""


ITERATIONS = 100
"""Of k-means, at most; it stops when no point changes sets, as a rule after a few."""

COLUMNS = 2**16
"""Read at a time, so that no copy in double precision holds a whole model."""

FEW = 1024
"""Up to so many points everything is in double precision, and means are taken anew."""

ROWS = 2**11
"""Of products that are made at a time: those above the diagonal are copied."""

MOST_AT_ONCE = {"mdav": 2**13, "kmeans": 2**11}
"""Of more points parts are divided (`divided_in_parts`): growth is linear from there on."""

SKETCH_NUMBERS = 4096
"""Of each update's sketch: 16 KB, a standard error of 2.2% of a squared distance."""

TOO_NEAR = 0.005
"""Chance, at any data, that two vectors are taken for nearer than they are."""

SKETCHED_ROWS = 1024


def divided_in_parts(
    points: Float[Tensor, "n d"],
    k: int,
    most: int,
    divide: Callable[[Float[Tensor, "m d"]], Iterable[Sequence[int]]],
) -> Iterator[Sequence[int]]:
    """Divide points into sets part by part, with at most so many in a part.

    While a part has more, it is halved across the direction of its widest spread (the first
    principal component, by power iteration). One half has a multiple of k, so that there
    are floor(n/k) sets in all, as without parts. No set spans two parts: that is what sets
    lose in tightness.

    Args:
        points: seen from anywhere.
        k: the least points of a set.
        most: points of a part, but no fewer than 2k.
        divide: how a part is divided.
    """
    parts = [torch.arange(len(points))]
    while parts:
        part = parts.pop()
        if len(part) > max(most, 2 * k):
            parts += _halves(points, part, k)
        else:
            own = part.tolist()
            yield from ([own[i] for i in indices] for indices in divide(points[part]))


def _halves(
    points: Float[Tensor, "n d"], part: Int[Tensor, " m"], k: int
) -> tuple[Int[Tensor, " low"], Int[Tensor, " high"]]:
    direction = _widest(points[part[:: -(-len(part) // LOOKED_AT)]])
    along = torch.cat([points[rows] @ direction for rows in part.split(LOOKED_AT)])
    order = part[along.argsort(stable=True)]
    cut = len(part) // (2 * k) * k
    return order[:cut].sort().values, order[cut:].sort().values


def _widest(points: Float[Tensor, "n d"]) -> Float[Tensor, " d"]:
    centred = points - points.mean(dim=0)
    direction = centred[centred.square().sum(dim=1).argmax()]
    for _ in range(STEPS):
        direction = torch.nn.functional.normalize(centred.T @ (centred @ direction), dim=0)
    return direction


Sets = tuple[tuple[int, ...], ...]
"""A partition: sorted indices of points, the sets ordered by their first index."""


def mdav(points: Float[Tensor, "n d"], k: int, most: int = MOST_AT_ONCE["mdav"]) -> Sets:
    """Divide by maximum distance to the average vector.

    While at least 2k points are left: the point furthest from their mean takes its k - 1
    nearest; if at least 2k are left still, so does the one furthest from that point. The
    rest is the last set. Ties go to the lower index. For cosine distances give
    `unit_rows`. Points that are not all finite are all tied. More than `most` points are
    divided in parts; of more than 1,024 the products are in single precision.

    Args:
        points: in their rows.
        k: the least points of a set.
        most: points of a part, but no fewer than 2k; their products take 4 most^2 bytes.

    Raises:
        ValueError: not 1 <= k <= n.

    References:
        Domingo-Ferrer, Torra, Ordinal, Continuous and Heterogeneous k-Anonymity Through
        Microaggregation, 2005 (MDAV-generic).
    """
    _count(len(points), k)
    if len(points) > max(most, 2 * k):
        parts = divided_in_parts(points, k, most, lambda own: mdav(own, k, most))
        return _in_order(parts)
    few = len(points) <= FEW
    gram = _products(points, torch.float64 if few else torch.float32)
    return _in_order(_around_extremes(gram, k, _anew(gram) if few else _kept_up(gram)))


def balanced_kmeans(points: Float[Tensor, "n d"], k: int, generator: np.random.Generator) -> Sets:
    """Divide by k-means in which every set gets its k points.

    Lloyd's iteration from k-means++ seeds; the points are assigned to the centres with
    the least total squared distance such that no set has fewer than k. For cosine
    distances give `unit_rows`. Points that are not all finite are all tied.

    Raises:
        ValueError: not 1 <= k <= n.

    References:
        Bradley, Bennett, Demiriz, Constrained K-Means Clustering, 2000.
        Arthur, Vassilvitskii, k-means++: The Advantages of Careful Seeding, 2007.
    """
    count = _count(len(points), k)
    if len(points) > max(MOST_AT_ONCE["kmeans"], 2 * k):

        def divided(own: Float[Tensor, "m d"]) -> Sets:
            return balanced_kmeans(own, k, generator)

        most = MOST_AT_ONCE["kmeans"]
        return _in_order(divided_in_parts(points, k, most, divided))
    gram = _products(points, torch.float64)
    means = np.eye(len(gram))[_spread_seeds(_squared_distances(gram), count, generator)]
    labels = np.full(len(gram), -1)
    for _ in range(ITERATIONS):
        before, labels = labels, _balanced(_to_means(gram, means), k)
        if np.array_equal(before, labels):
            break
        member = np.arange(count)[:, None] == labels
        means = member / member.sum(axis=1, keepdims=True)
    return _in_order([np.flatnonzero(labels == c).tolist() for c in range(count)])


def public_random(n: int, k: int, generator: np.random.Generator) -> Sets:
    """Divide n points blindly: shuffled, and dealt to the sets in turn.

    Sizes are n / C, rounded down or up. As no data are looked at, the partition itself
    reveals nothing.

    Raises:
        ValueError: not 1 <= k <= n.
    """
    count = _count(n, k)
    shuffled = generator.permutation(n)
    return _in_order([shuffled[c::count].tolist() for c in range(count)])


def set_sizes(n: int, k: int) -> tuple[int, ...]:
    """Return how large the sets of `public_random` are; one of all where n < k."""
    count = _count(n, min(n, k))
    return tuple(len(range(c, n, count)) for c in range(count))


def unit_rows(points: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """Return the points scaled to length 1; a zero stays zero.

    |u - v|^2 = 2 (1 - cos(u, v)): who is nearer by cosine is nearer on these by L2.
    """
    return torch.nn.functional.normalize(points, dim=1)


def diameters(points: Float[Tensor, "n d"], sets: Sets, by: Distance = "l2") -> tuple[float, ...]:
    """Return the largest distance inside each set: the paper's Delta.

    A set of one has 0; a point that is not finite makes its set's diameter NaN.
    """
    return tuple(float(_distances(points, members, by).max()) for members in sets)


def neighbours(
    points: Float[Tensor, "n d"], sets: Sets, max_distance: float, by: Distance = "l2"
) -> tuple[Sets, ...]:
    """Return for each set, for each of its members, who else is near it.

    Near is a distance of at most `max_distance`. The lists follow the order of `sets`; a
    point that is not finite is near no other.
    """
    return tuple(
        tuple(
            tuple(
                other
                for other, distance in zip(members, row, strict=True)
                if other != member and distance <= max_distance
            )
            for member, row in zip(members, _distances(points, members, by).tolist(), strict=True)
        )
        for members in sets
    )


def _count(n: int, k: int) -> int:
    """Return how many sets of at least k there are among n points."""
    if not 1 <= k <= n:
        raise ValueError(
            f"expected sets of 1 to {n} among {n} points, found k = {k}: "
            "ask for smaller sets, or wait for more points"
        )
    return n // k


def _in_order(sets: Iterable[Sequence[int]]) -> Sets:
    return tuple(sorted(tuple(sorted(members)) for members in sets))


def _products(points: Float[Tensor, "n d"], precision: torch.dtype) -> Float[ndarray, "n n"]:
    """Return the inner products of the points, seen from their mean."""
    gram = torch.zeros(len(points), len(points), dtype=precision)
    columns = max(COLUMNS * FEW // max(len(points), FEW), 1)
    for columns_part in points.split(columns, dim=1):
        centred = (columns_part - columns_part.mean(dim=0, dtype=torch.float64)).to(precision)
        for start in range(0, len(gram), ROWS):
            end = min(start + ROWS, len(gram))
            gram[start:end, :end].addmm_(centred[start:end], centred[:end].T)
    for start in range(ROWS, len(gram), ROWS):
        gram[:start, start : start + ROWS] = gram[start : start + ROWS, :start].T
    if not gram.diagonal().isfinite().all():  # a client's training diverged
        gram.zero_()
    return gram.numpy()


_Towards = Callable[[Int[ndarray, " left"], Int[ndarray, " taken"]], Float[ndarray, " left"]]
"""Each point's product with the mean of those that are left, after some were taken."""


def _anew(gram: Float[ndarray, "n n"]) -> _Towards:
    """Take the mean anew each time: O(n^2) a set."""
    return lambda left, _: gram[np.ix_(left, left)].mean(axis=1)


def _kept_up(gram: Float[ndarray, "n n"]) -> _Towards:
    """Take points out of a sum: O(n k) a set.

    The last bits differ, and may decide between points that are equally far.
    """
    sums = gram.sum(axis=1, dtype=np.float64)

    def towards(
        left: Int[ndarray, " left"], taken: Int[ndarray, " taken"]
    ) -> Float[ndarray, " left"]:
        np.subtract(sums, gram[taken].sum(axis=0), out=sums)
        return sums[left] / len(left)

    return towards


def _around_extremes(
    gram: Float[ndarray, "n n"], k: int, towards_mean: _Towards
) -> list[list[int]]:
    """Return the sets of MDAV, in the order in which they are closed."""
    lengths = gram.diagonal()
    left, sets = np.arange(len(gram)), list[list[int]]()
    taken = left[:0]

    def away(seed: int) -> Float[ndarray, " left"]:
        return np.maximum(lengths[seed] + lengths[left] - 2 * gram[seed, left], 0)

    def close(seed: int) -> None:
        nonlocal left, taken
        order = left[np.argsort(away(seed), kind="stable")]
        sets.append(order[:k].tolist())
        taken = np.append(taken, order[:k])
        left = np.sort(order[k:])

    while len(left) >= 2 * k:
        # |p_i - mean|^2 but for what is the same for every i
        from_mean = lengths[left] - 2 * towards_mean(left, taken)
        taken = left[:0]
        extreme = int(left[from_mean.argmax()])
        close(extreme)
        if len(left) >= 2 * k:
            close(int(left[away(extreme).argmax()]))
    return [*sets, left.tolist()]


def _squared_distances(gram: Float[ndarray, "n n"]) -> Float[ndarray, "n n"]:
    lengths = gram.diagonal()
    return np.maximum(lengths[:, None] + lengths - 2 * gram, 0)


def _distances(
    points: Float[Tensor, "n d"], members: Sequence[int], by: Distance
) -> Float[Tensor, "m m"]:
    """Return L2 or cosine distances, without the cancellation that inner products bring.

    1 - cos(u, v) = |u / |u| - v / |v||^2 / 2; a zero has no angle, and NaN to all others.
    """
    rows = points[list(members)].double()
    if by == "cosine":
        rows = rows / rows.norm(dim=1, keepdim=True)
    apart = torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist")
    return apart.square() / 2 if by == "cosine" else apart


def _spread_seeds(
    away: Float[ndarray, "n n"], count: int, generator: np.random.Generator
) -> list[int]:
    """Draw points, each with the probability of its squared distance to those before."""
    seeds = [int(generator.integers(len(away)))]
    while len(seeds) < count:
        nearest = away[seeds].min(axis=0)
        if not nearest.any():  # as many different points as there are
            nearest = np.ones_like(nearest)
        seeds.append(int(generator.choice(len(away), p=nearest / nearest.sum())))
    return seeds


def _to_means(
    gram: Float[ndarray, "n n"], means: Float[ndarray, "sets n"]
) -> Float[ndarray, "n sets"]:
    """Return squared distances to means, as each point's weight in them."""
    towards = gram @ means.T
    return gram.diagonal()[:, None] - 2 * towards + (means.T * towards).sum(axis=0)


def _balanced(cost: Float[ndarray, "n sets"], k: int) -> Int[ndarray, " n"]:
    """Return the cheapest label of each point such that each label has k points or more.

    A set has k places, and one for each of the n mod k that are left over, if C = n // k.
    Phantoms that may sit in the latter only, at no cost, make the places fully taken.
    """
    from scipy.optimize import linear_sum_assignment

    n, count = cost.shape
    extra = n - count * k
    phantom = np.tile(np.repeat([np.inf, 0.0], [k, extra]), count)
    phantoms = np.tile(phantom, (extra * (count - 1), 1))
    places = np.vstack([np.repeat(cost, k + extra, axis=1), phantoms])
    return linear_sum_assignment(places)[1][:n] // (k + extra)


Sketch = Float[Tensor, " numbers"]


@dataclass(frozen=True, slots=True, eq=False)
class Sketcher:
    """A linear map S from d coordinates to m numbers that keeps distances on average.

    (S u)_b = sum of s_i u_i over the coordinates i with h(i) = b

    s_i is 1 or -1, each as likely. h puts every run of m coordinates into all m places,
    shifted by a random number of places, another one for each run. So two coordinates share
    a place with a probability of 1/m at most, and

    E |S u|^2 = |u|^2,  Var |S u|^2 <= (2 / m) |u|^4

    for every u: with Chebyshev, |S u|^2 is off by more than a share e of |u|^2 with a
    probability of 2 / (m e^2) at most. Where no few coordinates make up a vector, it is
    distributed nearly as |u|^2 chi^2_m / m, and far deviations are rarer by far. As S is
    linear, S u - S v shows the distance of u and v.

    Attributes:
        signs: of each coordinate, s_i.
        shifts: of each run of m coordinates.
        numbers: m.

    References:
        Charikar, Chen, Farach-Colton, Finding Frequent Items in Data Streams, 2002.
        Thorup, Zhang, Tabulation-Based 5-Independent Hashing with Applications to Linear
        Probing and Second Moment Estimation, 2012, section 1.2.
        Weinberger et al., Feature Hashing for Large Scale Multitask Learning, 2009.
    """

    signs: Float[Tensor, " coordinates"]
    shifts: tuple[int, ...]
    numbers: int

    def __call__(self, vector: Float[Tensor, " coordinates"]) -> Sketch:
        """Return the sketch; runs are added one after another, so that bits are fixed."""
        m = self.numbers
        places = torch.zeros(2 * m)  # a shifted run ends in the second half
        runs = zip(vector.float().split(m), self.signs.split(m), strict=True)
        for shift, (values, signs) in zip(self.shifts, runs, strict=True):
            places[shift : shift + len(values)].addcmul_(values, signs)
        return places[:m] + places[m:]

    def surely_within(self, distance: float) -> float:
        """Return the estimate up to which two vectors are taken for so near, or nearer.

        t^2 = (1 - e) distance^2 with 2 / (m e^2) = .005: of two that are farther apart the
        estimate is at most t with that probability, or less.
        """
        if len(self.shifts) <= 1:  # no distance is changed
            return distance
        e = math.sqrt(2 / (self.numbers * TOO_NEAR))
        return distance * math.sqrt(max(1 - e, 0.0))


def sketcher(
    coordinates: int, generator: np.random.Generator, numbers: int = SKETCH_NUMBERS
) -> Sketcher:
    """Draw a map from vectors of so many coordinates to so many numbers.

    With no more coordinates than numbers it changes no distance at all.
    """
    runs = math.ceil(coordinates / numbers)
    signs = generator.integers(2, size=coordinates, dtype=np.int8)
    shifts = generator.integers(numbers, size=runs)
    return Sketcher(torch.from_numpy(signs).float() * 2 - 1, (*shifts.tolist(),), numbers)


def sketch_error(numbers: int) -> float:
    """Return sqrt(2 / m), the standard error of a squared distance as a share of it."""
    return math.sqrt(2 / numbers)


@dataclass(frozen=True, slots=True, eq=False)
class SketchedCluster:
    """What is left of a cluster's updates once they have passed.

    Attributes:
        handles: of its clients, in client-name order.
        weights: of their updates.
        sketches: of their updates, some rows together; the last ones may be empty.
        model: sketch of the cluster's model, from which they trained.
    """

    sketch: Sketcher
    model: Float[Tensor, " numbers"]
    handles: list[Handle] = field(default_factory=list[Handle])
    weights: list[float] = field(default_factory=list[float])
    sketches: list[Float[Tensor, "rows numbers"]] = field(default_factory=list[Tensor])

    def take(self, update: ClientUpdate) -> None:
        """Store the sketch of one more update; the update itself is not kept."""
        # Rows stand together: small tensors that stay, one between two updates that go,
        # would keep the memory of these from being used again.
        row = len(self.handles) % SKETCHED_ROWS
        if row == 0:
            self.sketches.append(torch.zeros(SKETCHED_ROWS, self.sketch.numbers))
        self.sketches[-1][row] = self.sketch(flatten(trained(update.update)))
        self.handles.append(update.handle)
        self.weights.append(update.weight)

    def points(self) -> Float[Tensor, "clients numbers"]:
        """Hand the sketches over, a client in each row; none are left."""
        rows = torch.empty(len(self.handles), self.sketch.numbers)
        for own in reversed(rows.split(SKETCHED_ROWS)):
            own.copy_(self.sketches.pop()[: len(own)])
        return rows


class Sketches:
    """Every cluster's sketches, of updates that pass by one by one."""

    def __init__(self, models: Models, streams: Streams) -> None:
        # who knew a sketch before could send what it hides
        self._models, self._streams = models, streams.hidden()
        self.clusters: dict[int, SketchedCluster] = {}

    def take(self, update: ClientUpdate) -> None:
        """Store the sketch of one more update; the update itself is not kept."""
        j = update.cluster
        if j not in self.clusters:
            start = flatten(trained(self._models[j]))
            sketch = sketcher(len(start), self._streams.at("sketch", j).generator())
            self.clusters[j] = SketchedCluster(sketch, sketch(start))
        self.clusters[j].take(update)


def update_bytes(update: Params) -> int:
    """Return how many bytes an update takes in memory."""
    return sum(value.nbytes for value in update.values())


def sets_within(
    points: Float[Tensor, "n d"], sets: Sets, k: int, most: float, by: Distance
) -> Sets:
    """Return sets of diameter Delta at most; some points may be in none.

    1. The sets C_c with max_{i, j in C_c} |u_i - u_j| <= Delta stay as they are.
    2. Points that are left, in the order of the distance of their (k-1)-th nearest:
       S_i = {i and the k - 1 nearest that are left}, where its diameter is Delta at most.
    3. Every point that is left then joins the first set of fewer than 2k - 1 points that has
       a diameter of Delta at most with it.

    Sets have k to 2k - 1 points, and without a limit they are what they were. Points in no
    set have fewer than k - 1 others of these within Delta / 2 (Delta / 4 by cosine): else
    they would be a set. Points that are not finite are in none.

    Args:
        points: in their rows.
        sets: a partition of all points into sets of k to 2k - 1.
        k: the least points of a set.
        most: Delta.
        by: what it is measured by.
    """

    def fits(members: Sequence[int]) -> bool:
        return diameters(points, (tuple(members),), by)[0] <= most

    within = [list(indices) for indices in sets if fits(indices)]
    taken = {i for indices in within for i in indices}
    left = [i for i in range(len(points)) if i not in taken and points[i].isfinite().all()]
    apart = _pairwise_distances(points[left], by)
    free = np.ones(len(left), dtype=bool)
    reach = np.sort(apart, axis=1)[:, k - 1] if len(left) >= k else np.empty(0)
    for i in np.argsort(reach, kind="stable"):
        nearest = np.argsort(np.where(free, apart[i], np.inf), kind="stable")[:k]
        members = [left[j] for j in nearest]
        if free[i] and free[nearest].all() and fits(members):
            free[nearest] = False
            within.append(members)
    for i in (left[j] for j in np.flatnonzero(free)):
        room = (indices for indices in within if len(indices) < 2 * k - 1 and fits([*indices, i]))
        if (joined := next(room, None)) is not None:
            joined.append(i)
    return tuple(sorted(tuple(sorted(indices)) for indices in within))


def _pairwise_distances(points: Float[Tensor, "n d"], by: Distance) -> Float[ndarray, "n n"]:
    """Return what orders all points by how near they are; a point comes first to itself.

    By inner products, which is fast for many points; `diameters` then measures a set exactly.
    """
    rows = (unit_rows(points) if by == "cosine" else points).double()
    apart = torch.cdist(rows, rows).fill_diagonal_(-1)
    return apart.numpy()
