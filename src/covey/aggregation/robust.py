"""Aggregations that bear some false updates: trimmed means, medians, Krum, bounded norms."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import median
from typing import Annotated, ClassVar

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from covey.aggregation.base import (
    Aggregation,
    AggregationResult,
    Aggregator,
    AtOnce,
    ClientUpdate,
    ClusterMeans,
    ClusterwiseAggregation,
    FederationInfo,
    mean_per_cluster,
)
from covey.aggregation.server import Models
from covey.base.built_ins import component
from covey.base.components import AboveZero, NotNegative, Positive
from covey.base.names import Params
from covey.base.params import flatten, trained
from covey.base.rng import Streams

EXACT = 1e-9
"""More than a product of a share and a count is rounded by."""


NEAREST = 1e-6
"""Below this distance an update counts as so far away: nu in the paper."""

COLUMNS = 2**18
"""Numbers of each update that are looked at together: it bounds the memory."""


@component("aggregation", "trimmed-mean")
class TrimmedMean(ClusterwiseAggregation):
    """The coordinate-wise trimmed mean, from which few clients cannot move far.

    theta_j <- theta_j + mean of u_(k+1) ... u_(n-k),  k = max(1, floor(beta n))

    u_(1) <= ... <= u_(n) are the values of one coordinate in the updates of the n clients
    of cluster j. At least one value is left out at either end, so that a cluster needs
    three clients. All count alike.

    Attributes:
        trim: beta, the share that is left out at either end.

    References:
        Yin, Chen, Ramchandran, Bartlett, Byzantine-Robust Distributed Learning: Towards
        Optimal Statistical Rates, 2018, Definition 2.
    """

    needs_equal_weights: ClassVar[bool] = True

    trim: Annotated[float, Field(gt=0, lt=0.5)] = 0.1

    @property
    def fewest(self) -> int:
        """One to leave out at either end, and one to keep."""
        return 3

    def combined(self, updates: Sequence[ClientUpdate]) -> Params:
        """Return the trimmed mean of the updates."""
        cut = max(1, int(self.trim * len(updates) + EXACT))
        return trimmed([update.update for update in updates], cut)


def trimmed(updates: Sequence[Params], cut: int) -> Params:
    """Return each coordinate's mean without its `cut` largest and smallest values.

    BatchNorm's statistics are coordinates here. Counters take their maximum instead.
    """
    inner = slice(cut, len(updates) - cut)
    result: dict[str, torch.Tensor] = {}
    for name, first in updates[0].items():
        values = torch.stack([update[name] for update in updates])
        result[name] = (
            values.sort(dim=0).values[inner].mean(dim=0)
            if first.is_floating_point()
            else values.amax(dim=0)
        )
    return result


@component("aggregation", "median")
class Median(ClusterwiseAggregation):
    """The coordinate-wise median: where fewer than half lie, it stays among the others.

    theta_j <- theta_j + med(u_1, ..., u_n)

    For an even n it is the mean of the two values in the middle: with two clients the mean,
    which one of them alone can move. All count alike.

    References:
        Yin, Chen, Ramchandran, Bartlett, Byzantine-Robust Distributed Learning: Towards
        Optimal Statistical Rates, 2018, Definition 1.
    """

    needs_equal_weights: ClassVar[bool] = True
    keeps_clusters_apart: ClassVar[bool] = True
    waits: ClassVar[bool] = False

    def combined(self, updates: Sequence[ClientUpdate]) -> Params:
        """Return the median of the updates."""
        return trimmed([update.update for update in updates], (len(updates) - 1) // 2)


@component("aggregation", "krum")
class Krum(ClusterwiseAggregation):
    """The update that is nearest to its neighbours; Multi-Krum where `chosen` is above 1.

    s(i) = sum over the n - f - 2 updates u closest to u_i of |u_i - u|^2
    theta_j <- theta_j + mean of the m updates with the lowest s(i)

    n are the clients of cluster j, of which f may send anything; a cluster needs 2 f + 3
    clients, and m + f + 2. Of equal scores the first by client name is taken. Distances
    are those of what training moves. All count alike.

    Attributes:
        outliers: f.
        chosen: m.

    References:
        Blanchard, El Mhamdi, Guerraoui, Stainer, Machine Learning with Adversaries:
        Byzantine Tolerant Gradient Descent, 2017, sections 4 and 5.
    """

    needs_equal_weights: ClassVar[bool] = True

    outliers: Positive = 1
    chosen: Positive = 1

    @property
    def fewest(self) -> int:
        """Enough for every update to have neighbours that are no outliers."""
        return self.outliers + max(self.outliers + 3, self.chosen + 2)

    def combined(self, updates: Sequence[ClientUpdate]) -> Params:
        """Return the mean of the updates with the lowest scores."""
        points = torch.stack([flatten(trained(update.update)) for update in updates])
        scores = krum_scores(points, len(updates) - self.outliers - 2)
        best = scores.argsort(stable=True)[: self.chosen].sort().values
        return _mean(updates[i] for i in best.tolist())


def _mean(updates: Iterable[ClientUpdate]) -> Params:
    """Return the weighted mean of updates of one cluster."""
    means = ClusterMeans(())
    for update in updates:
        means.add(update)
    (cluster,) = means.sums
    return means.mean(cluster)


def krum_scores(
    points: Float[Tensor, "clients coordinates"], neighbours: int
) -> Float[Tensor, " clients"]:
    """Return the sum of each point's squared distances to its nearest neighbours."""
    away = torch.cdist(
        points.double(), points.double(), compute_mode="donot_use_mm_for_euclid_dist"
    )
    nearest = away.square().sort(dim=1).values
    return nearest[:, 1 : neighbours + 1].sum(dim=1)  # the first is its own


def _dots(updates: Sequence[Params]) -> Float[Tensor, "clients clients"]:
    """Return the products u_i u_k of all pairs of updates, in float64."""
    dots = torch.zeros(len(updates), len(updates), dtype=torch.float64)
    for name in updates[0]:
        columns = (update[name].reshape(-1).split(COLUMNS) for update in updates)
        for part in zip(*columns, strict=True):
            block = torch.stack(part).double()
            dots += block @ block.T
    return dots


@component("aggregation", "geometric-median")
class GeometricMedian(ClusterwiseAggregation):
    """The geometric median, by smoothed Weiszfeld steps: a majority holds it.

    theta_j <- theta_j + v,  v = argmin_v sum_i |u_i - v|

    Each step is v <- sum_i b_i u_i / sum_i b_i with b_i = 1 / max(nu, |u_i - v|), from the
    mean on. Distances are those of what training moves; the last b_i weigh the rest too.
    All count alike.

    Attributes:
        steps: how many.

    References:
        Pillutla, Kakade, Harchaoui, Robust Aggregation for Federated Learning, 2022,
        Algorithm 2.
    """

    needs_equal_weights: ClassVar[bool] = True
    keeps_clusters_apart: ClassVar[bool] = True
    waits: ClassVar[bool] = False

    steps: Positive = 50

    def combined(self, updates: Sequence[ClientUpdate]) -> Params:
        """Return the geometric median of the updates."""
        dots = _dots([trained(update.update) for update in updates])
        shares = torch.full((len(dots),), 1 / len(dots), dtype=torch.float64)
        for _ in range(self.steps):
            # |u_i - v|^2 = u_i u_i - 2 u_i v + v v, for v = sum_k shares_k u_k
            to_v = dots @ shares
            squares = dots.diagonal() - 2 * to_v + shares @ to_v
            nearness = 1 / squares.clamp(min=NEAREST**2).sqrt()
            shares = nearness / nearness.sum()
        pairs = zip(updates, shares.tolist(), strict=True)
        return _mean(replace(update, weight=share) for update, share in pairs)


@component("aggregation", "norm-bounded")
class NormBounded(Aggregation):
    """The weighted mean of updates, none of them longer than a bound.

    theta_j <- theta_j + sum_{i in S_j} w_i min(1, M / |u_i|) u_i / sum_{i in S_j} w_i

    One client moves the mean by at most its share of M. Without noise this is no
    differential privacy: see `privacy.client_clip`.

    Attributes:
        max_norm: M, the largest L2 norm of an update.
        max_relative_norm: above 0: M is so many times the median of the norms in the
            cluster and the round, so that it need not be known before.

    References:
        Sun, Kairouz, Suresh, McMahan, Can You Really Backdoor Federated Learning?, 2019,
        section 3, norm thresholding.
    """

    keeps_clusters_apart: ClassVar[bool] = True
    waits: ClassVar[bool] = False

    max_norm: AboveZero = 1.0
    max_relative_norm: NotNegative = 0.0

    def begin(self, models: Models, streams: Streams, federation: FederationInfo) -> Aggregator:  # noqa: ARG002 - for others
        """Begin the mean of every cluster's bounded updates."""
        most = self.max_relative_norm
        if most == 0:
            return _BoundedMeans(models, self.max_norm)

        def aggregate(models: Models, updates: list[ClientUpdate], _: Streams) -> AggregationResult:
            return mean_per_cluster(models, bounded_by_median(updates, most))

        return AtOnce(models, streams, aggregate)


class _BoundedMeans(ClusterMeans):
    """Means of updates, none of them longer than `most`."""

    def __init__(self, models: Models, most: float) -> None:
        super().__init__(models)
        self._most = most

    def add(self, update: ClientUpdate) -> None:
        """Add the bounded update."""
        super().add(replace(update, update=bounded(update.update, self._most)))


def bounded_by_median(updates: Sequence[ClientUpdate], times: float) -> tuple[ClientUpdate, ...]:
    """Return the updates, none longer than `times` the median norm in its cluster.

    A cluster in which fewer than half lie has a median between honest norms.
    """
    norms: dict[int, list[float]] = {}
    for update in updates:
        length = float(flatten(trained(update.update)).double().norm())
        norms.setdefault(update.cluster, []).append(length)
    most = {j: times * median(lengths) for j, lengths in norms.items()}
    return tuple(
        replace(update, update=bounded(update.update, most[update.cluster])) for update in updates
    )


def bounded(update: Params, most: float) -> Params:
    """Return min(1, most / |u|) u.

    BatchNorm's statistics, which are no coordinates of an update, are bounded in the same
    way, by themselves. Counters stay.
    """
    moved = trained(update)
    others = {
        name: value
        for name, value in update.items()
        if value.is_floating_point() and name not in moved
    }
    result = dict(update)
    for part in filter(None, (moved, others)):
        length = float(flatten(part).double().norm())
        if length > most:
            result |= {name: value * (most / length) for name, value in part.items()}
    return result
