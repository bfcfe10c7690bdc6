"""A membership risk as it was measured, with its error and what it rests on."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from covey.events import RiskMeasured
from covey.membership.attacks import Rates

__all__ = [
    "DIVERGED",
    "EXTRAPOLATED",
    "MIN_RECORDS",
    "Finding",
    "RiskEstimate",
    "Withheld",
    "extrapolated",
    "known_aucs",
    "stratified",
]

MIN_RECORDS = 10
"""Records on each side below which an estimate says nothing."""

EXTRAPOLATED = "extrapolated"
"""How the reason of an extrapolated estimate begins, so that they can be counted."""

DIVERGED = "diverged"
"""How every reason begins that stands in place of a diverged model's estimate."""


@dataclass(frozen=True, slots=True)
class RiskEstimate:
    """A measured membership risk: from the estimator to whoever acts on it, or reads it.

    Attributes:
        risk: MIA accuracy, unclamped: near 0.5 it may fall below.
        standard_error: of `risk`.
        auc: probability that a member looks more like one than a non-member does.
        members, non_members: how many records of each it was measured on.
        calibrated: whether anybody may act on it.
        reason: what it rests on.
        source: the name of the estimator.
        round_index: the round before which it was measured.
        inside: whether whoever knows it was one of the members.
    """

    risk: float
    standard_error: float
    auc: float | None = None
    members: int = 0
    non_members: int = 0
    calibrated: bool = True
    reason: str = ""
    source: str = ""
    round_index: int = 0
    inside: bool = True

    @classmethod
    def of(cls, rates: Rates, auc: float, reason: str = "") -> "RiskEstimate":
        """Return the estimate that an attack's rates amount to."""
        return cls(
            risk=rates.accuracy,
            standard_error=rates.standard_error,
            auc=auc,
            members=rates.members,
            non_members=rates.non_members,
            reason=reason,
        )

    def known(self, *, inside: bool) -> "RiskEstimate":
        """Return what a client needs of it to choose; nothing else is sent to any."""
        return RiskEstimate(
            self.risk, self.standard_error, round_index=self.round_index, inside=inside
        )

    def event(self, cluster: int) -> RiskMeasured:
        """Return the fact that it was measured, of this cluster."""
        return RiskMeasured(
            cluster=cluster,
            round_index=self.round_index,
            source=self.source,
            risk=self.risk,
            standard_error=self.standard_error,
            auc=self.auc,
            members=self.members,
            non_members=self.non_members,
            calibrated=self.calibrated,
            reason=self.reason,
        )


@dataclass(frozen=True, slots=True)
class Withheld:
    """Why there is no estimate: unknown means unprotected.

    Attributes:
        diverged: whether there is no model either, so that older estimates are void.
        source, round_index: as of an estimate.
    """

    reason: str
    diverged: bool = False
    source: str = ""
    round_index: int = 0

    def event(self, cluster: int) -> RiskMeasured:
        """Return the fact that there is no estimate of this cluster."""
        return RiskMeasured(
            cluster=cluster,
            round_index=self.round_index,
            source=self.source,
            risk=None,
            standard_error=None,
            auc=None,
            members=0,
            non_members=0,
            calibrated=False,
            reason=f"{DIVERGED if self.diverged else 'withheld'}: {self.reason}",
        )


Finding = RiskEstimate | Withheld
"""What an estimator returns."""


def extrapolated(estimate: RiskEstimate, reason: str) -> RiskEstimate:
    """Mark an estimate that nobody may act on: it is of smaller federations."""
    return replace(estimate, calibrated=False, reason=f"{EXTRAPOLATED}: {reason}")


def stratified(strata: Sequence[RiskEstimate]) -> RiskEstimate | None:
    """Average the estimates of several groups, weighted by their members.

    Mixing groups before comparing would let an attack succeed by telling groups apart.
    """
    if not strata:
        return None
    members = np.array([each.members for each in strata])
    share = members / members.sum()
    errors = np.array([each.standard_error for each in strata])
    return RiskEstimate(
        risk=float(share @ [each.risk for each in strata]),
        standard_error=float(np.sqrt(((share * errors) ** 2).sum())),
        auc=float(share @ known_aucs(strata)),
        members=int(members.sum()),
        non_members=sum(each.non_members for each in strata),
    )


def known_aucs(estimates: Sequence[RiskEstimate]) -> list[float]:
    """Return the AUC of each; NaN where it was not measured."""
    return [float("nan") if each.auc is None else each.auc for each in estimates]
