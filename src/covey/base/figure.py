"""A measured number with its error, or why there is none; its one wording; a risk.

The same objects travel from an attack through the ledger to the reader.
"""

from dataclasses import dataclass
from math import nan, sqrt
from typing import Annotated

from pydantic import ConfigDict, Field

from covey.base.arguments import in_range
from covey.base.components import Count, NotNegative, Share

Z = 1.959963984540054
"""Of a normal figure, so many standard errors either way hold it with 95%."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured number, or why there is none.

    Attributes:
        value: None: it is unknown, and `reason` says why.
        error: its standard error; None: not known.
        low, high: its 95% interval, where there is one.
    """

    value: float | None
    error: Annotated[float, Field(ge=0)] | None = None
    low: float | None = None
    high: float | None = None
    reason: str = ""

    __pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False)

    @classmethod
    def unknown(cls, reason: str) -> "Figure":
        """Return no figure, and why."""
        return cls(None, reason=reason)

    @classmethod
    def share(cls, value: float, error: float) -> "Figure":
        """Return a number in [0, 1] with its standard error, and value +- 1.96 SE.

        Raises:
            ConfigError: there is no such share, or no such error.
        """
        value, error = in_range("value", value, Share), in_range("error", error, NotNegative)
        reach = Z * error
        return cls(value, error, max(0.0, value - reach), min(1.0, value + reach))

    @property
    def lower_bound(self) -> float:
        """What the number is at least, with 97.5%; NaN where it is unknown."""
        return float(self) - Z * (self.error or 0.0)

    @property
    def cell(self) -> str:
        """Its text in a table whose reasons stand below it."""
        return "unknown" if self.value is None else str(self)

    def __float__(self) -> float:
        """Return the value; NaN where it is unknown."""
        return nan if self.value is None else float(self.value)

    def __str__(self) -> str:
        """Return three decimals with the interval, or else the error; or why it is unknown."""
        if self.value is None:
            return f"unknown: {self.reason}" if self.reason else "unknown"
        if self.low is not None and self.high is not None:
            return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"
        return f"{self.value:.3f}" + ("" if self.error is None else f" ± {self.error:.3f}")


def number(value: float | None) -> str:
    """Return the wording of a number without an error."""
    return str(Figure(value))


@dataclass(frozen=True, slots=True)
class RiskEstimate:
    """How well one attack separates a model's members from others, or why that is unknown.

    The same from the attack through the ledger to the reader: a red team's, the truth at
    the end, an audit's.

    Attributes:
        figure: MIA accuracy (TPR + TNR) / 2, unclamped: near 0.5 it may fall below.
        auc: probability that a member looks more like one than a non-member does.
        members, non_members: how many records of each it was measured on.
        calibrated: whether it is of this model's own size and recipe, so that reports count
            it: never an unknown one, nor one that was extrapolated from smaller federations.
        steers: whether clients may choose by it although it is not calibrated, as the
            operator allows; no report counts it.
        rests_on: what was compared.
        source: the name of the estimator, or of the attack.
        round_index: the round before which it was measured.
        inside: whether the client that measured it was one of the members.
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
    steers: bool = False

    __pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False)

    @classmethod
    def of_rates(
        cls,
        tpr: float,
        tnr: float,
        members: int,
        non_members: int,
        *,
        fitted: float | None = None,
        auc: float | None = None,
        rests_on: str = "",
    ) -> "RiskEstimate":
        """Return the MIA accuracy a = (TPR + TNR) / 2 with its error (IFCA-MIR, Eq. 8).

        SE^2 = [TPR (1 - TPR) / n1 + TNR (1 - TNR) / n0] / 4. Of a fitted threshold:
        SE^2 = a (1 - a) (1 / n1 + 1 / n0) / 4 + D^2 / 3, with D the difference between
        `fitted` and a. The best threshold may lie elsewhere, so that its rates are not
        known; of all with this accuracy, equal ones vary most. What it achieves lies
        between a, which is too low on other records, and `fitted`, too high on its own;
        anywhere between is D^2 / 3 from an end in the mean square.

        Each side counts with one more record that is right and one that is wrong: no
        sample is certain.

        Args:
            tpr: share of the members that the attack calls members.
            tnr: share of the non-members that it calls non-members.
            members: how many there were.
            non_members: how many there were.
            fitted: accuracy of one threshold on the very records that it is fitted to;
                None: no threshold was fitted.
            auc: of the same scores.
            rests_on: what was compared.

        Raises:
            ConfigError: a rate is no share, or a number is below 0.

        References:
            Agresti, Caffo, Simple and Effective Confidence Intervals for Proportions and
            Differences of Proportions, 2000.
        """
        for name, share in (("tpr", tpr), ("tnr", tnr), ("fitted", fitted), ("auc", auc)):
            in_range(name, share, Share | None)
        for name, count in (("members", members), ("non_members", non_members)):
            in_range(name, count, Count)
        accuracy = (tpr + tnr) / 2
        rates, left_open = (tpr, tnr), 0.0
        if fitted is not None:
            rates, left_open = (accuracy,) * 2, fitted - accuracy
        variance = left_open**2 / 3
        for rate, n in zip(rates, (members, non_members), strict=True):
            p = (n * rate + 1) / (n + 2)
            variance += p * (1 - p) / (n + 2) / 4
        figure = Figure(accuracy, sqrt(variance))
        return cls(figure, auc, members, non_members, rests_on=rests_on)

    @classmethod
    def unknown(cls, reason: str, source: str = "") -> "RiskEstimate":
        """Return no estimate, and why: unknown means unprotected."""
        return cls(Figure.unknown(reason), calibrated=False, source=source)

    @classmethod
    def of_diverged(cls, why: str, source: str = "") -> "RiskEstimate":
        """Return no estimate of a model that is none; `why` goes on after "the model"."""
        figure = Figure.unknown(f"the model {why}")
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
        return self.is_known and (self.calibrated or self.steers)

    @property
    def reason(self) -> str:
        """What the figure rests on, or why there is none."""
        return self.figure.reason or self.rests_on

    def is_valid(self, round_index: int, lifetime: int) -> bool:
        """Say whether it still counts in a round: here alone an estimate expires."""
        return self.round_index >= round_index - lifetime

    def known(self, *, inside: bool) -> "RiskEstimate":
        """Return what a client needs of it to choose; nothing else is sent to any."""
        return RiskEstimate(
            Figure(self.figure.value, self.figure.error),
            calibrated=self.calibrated,
            round_index=self.round_index,
            inside=inside,
            steers=self.steers,
        )

    def __str__(self) -> str:
        """Return the figure, and that it is not calibrated, where it is known and is not."""
        bare = self.is_known and not self.calibrated
        return f"{self.figure}, not calibrated" if bare else str(self.figure)
