"""What a cluster's head can be: accuracy against risk, both exact, without training any."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from covey.engine.fixed_features import LocalRecords
from covey.heads import WEIGHT_STEPS, Rows, Sums, left_out_along
from covey.membership.left_out import stronger_risk
from covey.rng import Streams

__all__ = ["FrontPoint", "best_point", "risk_front"]

MAX_RECORDS = 2_000
"""Records of a cluster that are looked at, evenly spaced."""


@dataclass(frozen=True, slots=True)
class FrontPoint:
    """A head that a cluster could have.

    Attributes:
        pooling, regularisation: with which it is solved.
        risk: of the stronger attack on its clients' records.
        accuracy: on its clients' records, each by the head that never met it.
    """

    pooling: float
    regularisation: float
    risk: float
    accuracy: float


def risk_front(
    records: LocalRecords,
    sums: tuple[Sums, Sums],
    dials: tuple[Sequence[float], Sequence[float]],
    rows: Sequence[Rows],
    streams: Streams,
) -> tuple[FrontPoint, ...]:
    """Return every head that a cluster could have.

    Args:
        records: tell losses.
        sums: of the cluster, and of all others.
        dials: the poolings and the regularisations that are tried.
        rows: of the cluster's clients, who all have the same weight here, as all others.
        streams: by which records are divided to fit and to judge a threshold.
    """
    some = _evenly(rows)
    labels = torch.cat([each.labels for each in some])
    weight = rows[0].weight / WEIGHT_STEPS  # by which the variance is below the sums
    poolings, regularisations = dials
    found: list[FrontPoint] = []
    for pooling in poolings:
        heads = left_out_along(*sums, pooling, regularisations, some)
        for regularisation, left in zip(regularisations, heads, strict=True):
            left = replace(left, variances=left.variances * weight)
            risk = stronger_risk(records, [labels], [left], streams).risk
            right = (left.without.argmax(dim=1) == labels).double().mean()
            found.append(FrontPoint(pooling, regularisation, risk, float(right)))
    return tuple(found)


def best_point(front: Sequence[FrontPoint], accepted: float) -> FrontPoint:
    """Return the most accurate head whose risk is accepted; if none is, the safest.

    A lower accepted risk leaves fewer heads, so it never makes the choice riskier.
    """
    able = [each for each in front if each.risk <= accepted]
    if not able:
        return min(front, key=lambda each: each.risk)
    return max(able, key=lambda each: each.accuracy)


def _evenly(rows: Sequence[Rows]) -> list[Rows]:
    """Return at most so many records, each client's share of them."""
    total = sum(map(len, rows))
    step = max(1, -(-total // MAX_RECORDS))
    return [
        Rows(each.features[::step], each.labels[::step], each.weight) for each in rows
    ]
