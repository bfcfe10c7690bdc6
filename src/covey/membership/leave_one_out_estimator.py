"""The risk of a head that was solved, from what it would be without each record."""

from typing import ClassVar

from covey.components.capability import Capability
from covey.components.state import kept
from covey.heads import ClusterSums, scores_without_records
from covey.membership.assessment import Target
from covey.membership.base import RiskContext, RiskEstimator
from covey.membership.estimates import MIN_RECORDS, Finding, Withheld
from covey.membership.left_out import stronger_risk
from covey.membership.own_risk import squared_sums
from covey.rng import Streams

__all__ = ["LeaveOneOutEstimator"]


class LeaveOneOutEstimator(RiskEstimator):
    """Know what a head would say of each record had it not been a member; guess nothing.

    The loss of every member is compared with its loss under the head without it, which
    stands for a non-member's: the loss threshold's risk. The same quantities give the best
    attack that anybody could mount on each record (`covey.heads.exposure`). The estimate
    is of the stronger one. Nobody holds examples out for it, and no model is trained.
    """

    requires: ClassVar[frozenset[Capability]] = frozenset(
        {Capability.CLIENT_DATA, Capability.EXACT_SUMS}
    )

    def estimate(
        self, target: Target, context: RiskContext, streams: Streams
    ) -> Finding:
        """Return the risk of the stronger of both attacks."""
        records, sums = context.records, kept(target.states, ClusterSums)
        if records is None or not sums.is_whole or not sums.clients:
            return Withheld("its head is not solved from sums over those who are there")
        there = {client.handle: client for client in context.clients}
        if not sums.at_full_weight and not sums.counted.keys() <= there.keys():
            return Withheld("not everybody whose records are in its sums is there")
        squared = squared_sums(sums, records, there)
        head = sums.head(target.cluster, squared)
        rows = [
            records.rows(client.train, sums.counted[client.handle][1])
            for client in target.members
            if client.handle in sums.counted
        ]
        if sum(map(len, rows)) < MIN_RECORDS:
            return Withheld(f"fewer than {MIN_RECORDS} records in its sums")
        found = [scores_without_records(head, each) for each in rows]
        labels = [each.labels for each in rows]
        return stronger_risk(records, labels, found, streams)
