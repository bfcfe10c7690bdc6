"""How risk estimates come of rates, and several of one."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from covey.membership.attacks import Rates
from covey.risk import DIVERGED, Finding, RiskEstimate, Withheld

__all__ = [
    "DIVERGED",
    "EXTRAPOLATED",
    "MIN_RECORDS",
    "Finding",
    "RiskEstimate",
    "Withheld",
    "estimate_of",
    "extrapolated",
    "known_aucs",
    "stratified",
]

MIN_RECORDS = 10
"""Records on each side below which an estimate says nothing."""

EXTRAPOLATED = "extrapolated"
"""How the reason of an extrapolated estimate begins, so that they can be counted."""


def estimate_of(rates: Rates, auc: float, reason: str = "") -> RiskEstimate:
    """Return the estimate that an attack's rates amount to."""
    return RiskEstimate(
        risk=rates.accuracy,
        standard_error=rates.standard_error,
        auc=auc,
        members=rates.members,
        non_members=rates.non_members,
        reason=reason,
    )


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
