"""A membership risk as it was measured, with its error and what it rests on."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import ConfigDict, Field

from covey.base.figure import Figure

Count = Annotated[int, Field(ge=0)]


@dataclass(frozen=True, slots=True)
class RiskEstimate:
    """How well one attack tells a model's members from others, or why that is unknown.

    The same from the attack through the ledger to the reader: a red team's, the truth at
    the end, an audit's.

    Attributes:
        figure: MIA accuracy (TPR + TNR) / 2, unclamped: near 0.5 it may fall below.
        auc: probability that a member looks more like one than a non-member does.
        members, non_members: how many records of each it was measured on.
        calibrated: whether anybody may act on it: never on an unknown one, nor on one that
            was extrapolated from smaller federations.
        rests_on: what was compared.
        source: the name of the estimator, or of the attack.
        round_index: the round before which it was measured.
        inside: whether the client that knows it was one of the members.
        diverged: why the model is none, so that older estimates are void, too; "" where it
            is one.
        tpr_at_1: share of members found while 1% of non-members are accused.
        worst_client: the largest balanced accuracy on one client's members, at the
            threshold that is best for all; of few records it is large by chance alone.
    """

    figure: Figure
    auc: float | None = None
    members: Count = 0
    non_members: Count = 0
    calibrated: bool = True
    rests_on: str = ""
    source: str = ""
    round_index: Count = 0
    inside: bool = True
    diverged: str = ""
    tpr_at_1: float | None = None
    worst_client: float | None = None

    __pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False)

    @classmethod
    def unknown(cls, reason: str, source: str = "") -> "RiskEstimate":
        """Return no estimate, and why: unknown means unprotected."""
        return cls(Figure.unknown(reason), calibrated=False, source=source)

    @classmethod
    def of_diverged(cls, why: str, source: str = "") -> "RiskEstimate":
        """Return no estimate of a model that is none."""
        figure = Figure.unknown(f"diverged: {why}")
        return cls(figure, calibrated=False, source=source, diverged=why)

    @property
    def risk(self) -> float:
        """The figure's value; NaN where it is unknown."""
        return float(self.figure)

    @property
    def standard_error(self) -> float:
        """The figure's standard error."""
        return self.figure.error or 0.0

    @property
    def is_known(self) -> bool:
        """Whether there is a figure."""
        return self.figure.value is not None

    @property
    def counts(self) -> bool:
        """Whether clients may choose by it."""
        return self.calibrated and self.is_known

    @property
    def reason(self) -> str:
        """What the figure rests on, or why there is none."""
        return self.figure.reason or self.rests_on

    def is_valid(self, round_index: int, lifetime: int) -> bool:
        """Say whether it still counts in a round: here alone an estimate expires."""
        return self.round_index >= round_index - lifetime

    def known(self, *, inside: bool) -> "RiskEstimate":
        """Return what a client needs of it to choose; nothing else is sent to any."""
        figure = Figure(self.figure.value, self.figure.error)
        return RiskEstimate(figure, round_index=self.round_index, inside=inside)
