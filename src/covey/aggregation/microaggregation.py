"""Anonymity sets: how n points are divided so that each hides among at least k.

Every partition has C = floor(n/k) sets of k to 2k - 1 points. What needs distances takes
them from the inner products of the centred points: so it costs O(n^2 d) once, and shifting
all points by one vector (updates or models, it is the same) changes no set.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from covey.aggregation.bisection import divided_in_parts

__all__ = [
    "Sets",
    "balanced_kmeans",
    "diameters",
    "joined_sets",
    "mdav",
    "neighbours",
    "public_random",
    "set_sizes",
    "unit_rows",
]

Sets = tuple[tuple[int, ...], ...]
"""A partition: sorted indices of points, the sets ordered by their first index."""

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


def mdav(
    points: Float[Tensor, "n d"], k: int, most: int = MOST_AT_ONCE["mdav"]
) -> Sets:
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


def balanced_kmeans(
    points: Float[Tensor, "n d"], k: int, generator: np.random.Generator
) -> Sets:
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


def joined_sets(sets: Sets, owners: Sequence[Hashable | None], least: int) -> Sets:
    """Join sets until points of at least so many different owners are in each.

    The first set with too few joins the one that brings most of those it lacks; of
    several the smallest, then the first. It looks at owners alone, and at no data, and
    changes nothing where nothing is lacking.

    Args:
        sets: a partition.
        owners: by point; None: nobody knows whose it is, and it counts for none.
        least: different owners of each set.

    Raises:
        ValueError: there are not so many.
    """
    found = [(each, _owners(each, owners)) for each in sets]
    while lacking := [each for each in found if len(each[1]) < least]:
        points, own = lacking[0]
        found.remove(lacking[0])
        if not found:
            raise ValueError(
                f"expected points of at least {least} owners, found {len(own)}: "
                "ask for fewer, or wait for more points"
            )
        gains = [(min(len(o | own), least), -len(p)) for p, o in found]
        at = gains.index(max(gains))
        found[at] = (found[at][0] + points, found[at][1] | own)
    return _in_order([each for each, _ in found])


def unit_rows(points: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """Return the points scaled to length 1; a zero stays zero.

    |u - v|^2 = 2 (1 - cos(u, v)): who is nearer by cosine is nearer on these by L2.
    """
    return torch.nn.functional.normalize(points, dim=1)


def diameters(points: Float[Tensor, "n d"], sets: Sets) -> tuple[float, ...]:
    """Return the largest L2 distance inside each set: the paper's Delta.

    A set of one has 0; a point that is not finite makes its set's diameter NaN.
    """
    return tuple(float(_distances(points, members).max()) for members in sets)


def neighbours(
    points: Float[Tensor, "n d"], sets: Sets, max_distance: float
) -> tuple[Sets, ...]:
    """Return for each set, for each of its members, who else is near it.

    Near is an L2 distance of at most `max_distance`. The lists follow the order of
    `sets`; a point that is not finite is near nobody.
    """
    return tuple(
        tuple(
            tuple(
                other
                for other, distance in zip(members, row, strict=True)
                if other != member and distance <= max_distance
            )
            for member, row in zip(
                members, _distances(points, members).tolist(), strict=True
            )
        )
        for members in sets
    )


def _owners(
    members: Sequence[int], owners: Sequence[Hashable | None]
) -> frozenset[Hashable]:
    return frozenset(owners[i] for i in members) - {None}


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


def _products(
    points: Float[Tensor, "n d"], precision: torch.dtype
) -> Float[ndarray, "n n"]:
    """Return the inner products of the points, seen from their mean."""
    gram = torch.zeros(len(points), len(points), dtype=precision)
    columns = max(COLUMNS * FEW // max(len(points), FEW), 1)
    for some in points.split(columns, dim=1):
        centred = (some - some.mean(dim=0, dtype=torch.float64)).to(precision)
        for start in range(0, len(gram), ROWS):
            end = min(start + ROWS, len(gram))
            gram[start:end, :end].addmm_(centred[start:end], centred[:end].T)
    for start in range(ROWS, len(gram), ROWS):
        gram[:start, start : start + ROWS] = gram[start : start + ROWS, :start].T
    if not gram.diagonal().isfinite().all():  # a client's training diverged
        gram.zero_()
    return gram.numpy()


_Towards = Callable[
    [Int[ndarray, " left"], Int[ndarray, " taken"]], Float[ndarray, " left"]
]
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
    points: Float[Tensor, "n d"], members: tuple[int, ...]
) -> Float[Tensor, "m m"]:
    """Return L2 distances, without the cancellation that inner products bring."""
    rows = points[list(members)].double()
    return torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist")


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
    """Return squared distances to means, given as each point's weight in them."""
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
