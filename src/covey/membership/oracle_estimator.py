"""The true risk, from the real members and matched non-members: for simulations only."""

from dataclasses import replace
from typing import ClassVar

from covey.components.capability import Capability
from covey.membership.assessment import Target
from covey.membership.base import RiskContext, RiskEstimator
from covey.membership.estimates import MIN_RECORDS, Finding, Withheld
from covey.membership.ground_truth import true_risk
from covey.rng import Streams

__all__ = ["OracleEstimator"]


class OracleEstimator(RiskEstimator):
    """Look at the real members and at matched non-members."""

    requires: ClassVar[frozenset[Capability]] = frozenset({Capability.CLIENT_DATA})
    note: ClassVar[str] = "Clients saw the true risk of every cluster: an oracle."

    def estimate(
        self, target: Target, context: RiskContext, streams: Streams
    ) -> Finding:
        """Return what the audit at the end of a run would say now."""
        truth = true_risk(
            context.engine, target.params, target.members, context.reference, streams
        )
        if truth is None:
            return Withheld(f"fewer than {MIN_RECORDS} records on a side")
        return replace(truth, reason="the truth, which only a simulation knows")
