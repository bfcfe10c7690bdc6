"""A measured number with its error, or why there is none; its one wording."""

from dataclasses import dataclass
from math import nan
from typing import Annotated

from pydantic import ConfigDict, Field

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
        """Return a number in [0, 1] with its standard error, and value +- 1.96 SE."""
        reach = Z * error
        return cls(value, error, max(0.0, value - reach), min(1.0, value + reach))

    @property
    def lower_bound(self) -> float:
        """What the number is at least, with 97.5%; NaN where it is unknown."""
        return float(self) - 1.96 * (self.error or 0.0)

    @property
    def cell(self) -> str:
        """Its text in a table whose reasons stand below it."""
        return "unknown" if self.value is None else str(self)

    def __float__(self) -> float:
        """Return the value; NaN where it is unknown."""
        return nan if self.value is None else self.value

    def __str__(self) -> str:
        """Return three decimals with the interval, or else the error; or why it is unknown."""
        if self.value is None:
            return f"unknown: {self.reason}" if self.reason else "unknown"
        if self.low is not None and self.high is not None:
            return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"
        return f"{self.value:.3f}" + ("" if self.error is None else f" ± {self.error:.3f}")


def number(value: float | None, reason: str = "") -> str:
    """Return how a number is told that has no error, or why it is unknown."""
    return str(Figure(value, reason=reason))
