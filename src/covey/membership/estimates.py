"""A measured membership risk, with what it rests on."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from covey.membership.attacks import Rates

__all__ = ["FEWEST", "Figure", "stratified"]

FEWEST = 10
"""Records on each side below which a figure says nothing."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured MIA accuracy, unclamped: near 0.5 it may fall below."""

    risk: float
    standard_error: float
    auc: float
    members: int
    non_members: int

    @classmethod
    def of(cls, rates: Rates, auc: float) -> "Figure":
        """Return the figure that an attack's rates amount to."""
        return cls(
            risk=rates.accuracy,
            standard_error=rates.standard_error,
            auc=auc,
            members=rates.members,
            non_members=rates.non_members,
        )


def stratified(strata: Sequence[Figure]) -> Figure | None:
    """Average the figures of several groups, weighted by their members.

    Mixing groups before comparing would let an attack succeed by telling groups apart.
    """
    if not strata:
        return None
    members = np.array([figure.members for figure in strata])
    share = members / members.sum()
    errors = np.array([figure.standard_error for figure in strata])
    return Figure(
        risk=float(share @ [figure.risk for figure in strata]),
        standard_error=float(np.sqrt(((share * errors) ** 2).sum())),
        auc=float(share @ [figure.auc for figure in strata]),
        members=int(members.sum()),
        non_members=sum(figure.non_members for figure in strata),
    )
