"""A membership risk as it was measured, with its error and what it rests on."""

from dataclasses import dataclass

from covey.base.events import RiskMeasured

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
    def measured(cls, event: RiskMeasured) -> "RiskEstimate | None":
        """Return the estimate that an event tells of; None: it was withheld."""
        if event.risk is None or event.standard_error is None:
            return None
        return cls(
            risk=event.risk,
            standard_error=event.standard_error,
            auc=event.auc,
            members=event.members,
            non_members=event.non_members,
            calibrated=event.calibrated,
            reason=event.reason,
            source=event.source,
            round_index=event.round_index,
        )

    def is_valid(self, round_index: int, lifetime: int) -> bool:
        """Say whether it still counts in a round: here alone an estimate expires."""
        return self.round_index >= round_index - lifetime

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
