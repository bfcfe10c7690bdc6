"""The risk of a head that was solved, from what it would be without each record."""

from typing import ClassVar

import numpy as np

from covey.components.capability import Capability
from covey.components.state import kept
from covey.engine.fixed_features import LocalRecords
from covey.heads import (
    ClusterSums,
    LeftOut,
    Rows,
    joined,
    likelihood_ratio_successes,
    scores_without_records,
)
from covey.membership.assessment import Target
from covey.membership.base import RiskContext, RiskEstimator
from covey.membership.estimates import MIN_RECORDS, Finding, RiskEstimate, Withheld
from covey.membership.loss_histograms import (
    auc_of_counts,
    combined_counts,
    loss_counts,
    rates_of_counts,
)
from covey.rng import Streams

__all__ = ["LeaveOneOutEstimator"]


class LeaveOneOutEstimator(RiskEstimator):
    """Know what a head would say of each record had it not been a member; guess nothing.

    The loss of every member is compared with its loss under the head without it, which
    stands for a non-member's: the loss threshold's risk. The same quantities give the best
    attack that anybody could mount on each record (`covey.heads.exposure`). The estimate
    is of the stronger one. Nobody holds examples out for it, and no model is trained.
    """

    requires: ClassVar[frozenset[Capability]] = frozenset({Capability.CLIENT_DATA})

    def estimate(
        self, target: Target, context: RiskContext, streams: Streams
    ) -> Finding:
        """Return the risk of the stronger of both attacks."""
        records, sums = context.records, kept(target.states, ClusterSums)
        if records is None or not sums.is_whole or not sums.clients:
            return Withheld("its head is not solved from sums over those who are there")
        head = sums.head(target.cluster)
        rows = [
            records.rows(client.train, sums.counted[client.handle][1])
            for client in target.members
            if client.handle in sums.counted
        ]
        found = [scores_without_records(head, each) for each in rows]
        if sum(map(len, rows)) < MIN_RECORDS:
            return Withheld(f"fewer than {MIN_RECORDS} records in its sums")
        by_loss = _loss_threshold(records, rows, found, streams)
        by_ratio = _likelihood_ratio(joined(found))
        return max(by_loss, by_ratio, key=lambda each: each.risk)


def _loss_threshold(
    records: LocalRecords, rows: list[Rows], found: list[LeftOut], streams: Streams
) -> RiskEstimate:
    """Return the risk by a threshold on losses, of members and of the left out."""

    def counts(name: str) -> list[np.ndarray]:
        return [
            loss_counts(
                records.losses(getattr(each, name), own).double().numpy(),
                streams.at("folds", name, place).generator(),
            )
            for place, (own, each) in enumerate(zip(rows, found, strict=True))
        ]

    inside, outside = combined_counts(counts("scores"), counts("without"))
    rates = rates_of_counts(inside, outside)
    return RiskEstimate(
        risk=rates.accuracy,
        standard_error=rates.standard_error,
        auc=auc_of_counts(inside, outside),
        members=rates.members,
        non_members=rates.non_members,
        reason="a loss threshold between records and the same records left out",
    )


def _likelihood_ratio(found: LeftOut) -> RiskEstimate:
    """Return how often the best attack is right, on average over the records."""
    successes = likelihood_ratio_successes(found).numpy()
    n = len(successes)
    return RiskEstimate(
        risk=float(successes.mean()),
        standard_error=float(successes.std() / np.sqrt(n)),
        members=n,
        non_members=n,
        reason="the likelihood ratio of every record, in and left out",
    )
