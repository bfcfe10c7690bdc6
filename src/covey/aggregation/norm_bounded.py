"""The mean of updates of bounded length."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from statistics import median
from typing import Annotated, ClassVar

from pydantic import Field

from covey.aggregation.base import Aggregation
from covey.aggregation.merging import AggregationResult, ClientUpdate, mean_per_cluster
from covey.components.capability import Capability
from covey.components.foreign import reserved
from covey.components.section import NotNegative
from covey.params import flatten, trained
from covey.rng import Streams
from covey.types import Params

__all__ = ["NormBounded", "bounded", "bounded_by_median"]


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

    rules_out: ClassVar[frozenset[Capability]] = frozenset()
    waits: ClassVar[bool] = False

    max_norm: Annotated[float, Field(gt=0)] = 1.0
    max_relative_norm: NotNegative = 0.0

    def idle_options(self, section: str) -> Iterator[tuple[str, str]]:
        """Yield the absolute bound where there is a relative one."""
        if self.max_relative_norm > 0:
            here = f"{self.max_relative_norm:g}"
            yield "max_norm", reserved(f"{section}.max_relative_norm", ("0",), here)

    def aggregate(
        self,
        models: tuple[Params, ...],
        updates: Iterable[ClientUpdate],
        streams: Streams,
    ) -> AggregationResult:
        """Move every cluster model by the mean of its clients' bounded updates."""
        if self.max_relative_norm > 0:
            by_median = bounded_by_median(tuple(updates), self.max_relative_norm)
            return mean_per_cluster(models, by_median, streams)
        short = (replace(u, update=bounded(u.update, self.max_norm)) for u in updates)
        return mean_per_cluster(models, short, streams)


def bounded_by_median(
    updates: Sequence[ClientUpdate], times: float
) -> tuple[ClientUpdate, ...]:
    """Return the updates, none longer than `times` the median norm in its cluster.

    A cluster in which fewer than half lie has a median between honest norms.
    """
    norms: dict[int, list[float]] = {}
    for each in updates:
        length = float(flatten(trained(each.update)).double().norm())
        norms.setdefault(each.cluster, []).append(length)
    most = {j: times * median(found) for j, found in norms.items()}
    return tuple(
        replace(each, update=bounded(each.update, most[each.cluster]))
        for each in updates
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
    found = dict(update)
    for part in filter(None, (moved, others)):
        length = float(flatten(part).double().norm())
        if length > most:
            found |= {name: value * (most / length) for name, value in part.items()}
    return found
