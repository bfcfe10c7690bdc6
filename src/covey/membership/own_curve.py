"""What one client's risk is at other weights than its own: its page shows it."""

from collections.abc import Mapping
from dataclasses import dataclass

from covey.data.examples import Client
from covey.engine.fixed_features import LocalRecords
from covey.heads import WEIGHT_STEPS, ClusterSums, OwnWeight, squared_steps
from covey.membership.left_out import likelihood_ratio_risk, loss_threshold_risk
from covey.membership.own_risk import UNTOLD, own_risks, squared_sums
from covey.rng import Streams
from covey.types import Handle

__all__ = ["CurvePoint", "risk_curve"]

CURVE = (0, 8, 26, 51, 77, 128, 179, 218, 256)
"""Weights that are shown, in steps of their grid: 0, .03, .1, .2, .3, .5, .7, .85, 1."""


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """A client's records in its cluster's head, were this its weight.

    Attributes:
        likelihood_ratio: risk by the attack that weights follow.
        loss_threshold: risk by a threshold on losses.
        standard_error: of that one, which is large where records are few.
        accuracy: on its records, each by the head that never met it.
    """

    weight: float
    likelihood_ratio: float
    loss_threshold: float
    standard_error: float
    accuracy: float


def risk_curve(
    known: ClusterSums,
    records: LocalRecords,
    clients: Mapping[Handle, Client],
    handle: Handle,
    streams: Streams,
) -> tuple[CurvePoint, ...]:
    """Return a client's risk at its own weight and at those of CURVE.

    The head is solved anew for each of them, all others being as they are.

    Args:
        known: everybody's sums.
        records: tell features and losses.
        clients: everybody whose records are in the sums.
        handle: the client's.
        streams: by which records are divided to fit and to judge a threshold.
    """
    cluster, present = known.counted[handle]
    inside = [(h, w) for h, (j, w) in sorted(known.counted.items()) if j == cluster]
    rows = [records.rows(clients[h].train, w) for h, w in inside]
    squared = squared_sums(known, records, clients) or known.sums
    found = own_risks(known.head(cluster, squared), rows)
    precision = found[inside.index((handle, present))].precision
    train = clients[handle].train
    change = records.sums([(train, 1)], len(known.targets[cluster]))

    def point(weight: int) -> CurvePoint:
        sums, varying = list(known.sums), list(squared)
        sums[cluster] += change.times(weight - present)
        varying[cluster] += change.times(squared_steps(weight) - squared_steps(present))
        there = known.of(tuple(sums), known.counted)
        head = there.head(cluster, tuple(varying))
        own = records.rows(train, weight)
        left = OwnWeight.of(head, own).at(weight)
        by_loss = loss_threshold_risk(records, [own.labels], [left], streams)
        right = (left.without.argmax(dim=1) == own.labels).double().mean()
        return CurvePoint(
            weight=weight / WEIGHT_STEPS,
            likelihood_ratio=likelihood_ratio_risk([left], precision).risk,
            loss_threshold=by_loss.risk if weight else UNTOLD,
            standard_error=by_loss.standard_error if weight else 0.0,
            accuracy=float(right),
        )

    return tuple(point(weight) for weight in sorted({*CURVE, present}))
