"""One client's own risk, and the weight at which it is what the client accepts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from covey.data.examples import Client
from covey.engine.fixed_features import LocalRecords
from covey.heads import (
    ClusterSums,
    Head,
    OwnWeight,
    Rows,
    Sums,
    error_precision,
    joined,
    likelihood_ratio_successes,
    squared_steps,
)
from covey.types import Handle

__all__ = ["OwnRisk", "largest_weight", "own_risks", "squared_sums"]

UNTOLD = 0.5
"""The risk of who is not in the model: members and others are told apart by chance."""

COARSE = 16
"""Steps of the weight's grid between those that are looked at first."""


@dataclass(frozen=True, slots=True, eq=False)
class OwnRisk:
    """The risk of one client's records, as its weight moves and all else stays.

    It is the likelihood ratio's. That attack is the stronger of both (`stronger_risk`),
    and it is known record by record: a client's few records suffice, where a threshold on
    as few losses is known to within 1 / (2 sqrt(n)) at best. The errors' covariance is
    that of its whole cluster.

    Attributes:
        records: the client's.
        precision: inverse of the errors' covariance in its cluster.
    """

    records: OwnWeight
    precision: Tensor

    def at(self, weight: int) -> float:
        """Return the mean chance that the attack is right, at this weight."""
        if not weight:
            return UNTOLD
        left = self.records.at(weight)
        return float(likelihood_ratio_successes(left, self.precision).mean())


def largest_weight(risk: Callable[[int], float], accepted: float, most: int) -> int:
    """Return the largest weight whose risk is accepted; 0: whoever has it is not in.

    Looked at are `most` and every 16th step below it, then every step between the largest
    that is accepted and the next. A lower accepted risk never gives a larger weight,
    whatever shape the curve has. A risk that is unknown (nan) is not accepted.
    """

    def first(weights: Sequence[int]) -> int:
        return next((w for w in weights if not w or risk(w) <= accepted), 0)

    coarse = [most, *range((most - 1) // COARSE * COARSE, -1, -COARSE)]
    low = first(coarse)
    if low == most:
        return most
    high = coarse[coarse.index(low) - 1]
    return first(range(high - 1, low, -1)) or low


def own_risks(head: Head, rows: Sequence[Rows]) -> list[OwnRisk]:
    """Return the risk of every client of a cluster."""
    every = [OwnWeight.of(head, each) for each in rows]
    precision = error_precision(joined([each.at(each.weight) for each in every]))
    return [OwnRisk(each, precision) for each in every]


def squared_sums(
    known: ClusterSums, records: LocalRecords, clients: Mapping[Handle, Client]
) -> tuple[Sums, ...] | None:
    """Return every cluster's sums at the squares of the weights; None: all are 1.

    Raises:
        KeyError: a client whose records are in the sums is not there.
    """
    if known.at_full_weight:
        return None
    d = len(known.targets[0])
    inside: list[list[tuple[Handle, int]]] = [[] for _ in known.targets]
    for handle, (j, weight) in sorted(known.counted.items()):
        inside[j].append((handle, squared_steps(weight)))
    return tuple(
        records.sums(((clients[h].train, weight) for h, weight in own), d)
        for own in inside
    )
