"""What a bench of performance says of one figure: a ratio, its spread and its limit."""

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from covey.errors import ConfigError

__all__ = ["Change", "Comparison", "Limit", "Timed", "changes", "compared", "unknown"]


@dataclass(frozen=True, slots=True)
class Limit:
    """What a figure is to reach.

    Attributes:
        value: the bound.
        at_most: whether the figure must not be above it; else: not below.
        unit: "": it bounds the ratio; else what else the figure is told in.
    """

    value: float
    at_most: bool = False
    unit: str = ""

    def holds(self, figure: float) -> bool:
        """Say whether a figure is within it."""
        return figure <= self.value if self.at_most else figure >= self.value

    def __str__(self) -> str:
        unit = f" {self.unit}" if self.unit else ""
        return f"{'<=' if self.at_most else '>='} {self.value:g}{unit}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """One row: covey beside what it is compared with, measured in the same run.

    Attributes:
        covey, peer: both quantities, with their unit.
        ratio: the median of the pairs' ratios; None: nothing to compare with.
        spread: the least and the greatest of the pairs' ratios.
        limit: in words; "": there is none.
        met: None: there is no limit, or no ratio.
        smaller_is_better: whether a ratio that grew is worse.
        note: why there is no ratio, or how a miss reads.
    """

    figure: str
    covey: str
    peer: str
    ratio: float | None
    spread: tuple[float, float] | None
    limit: str
    met: bool | None
    smaller_is_better: bool = False
    note: str = ""

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> "Comparison":
        """Return the row that was written as `asdict` has it.

        Raises:
            ConfigError: it is not one.
        """
        try:
            spread = told["spread"] and tuple(map(float, told["spread"]))
            return cls(**{**told, "spread": spread})
        except (KeyError, TypeError, ValueError) as error:
            fields = ", ".join(asdict(unknown("", "", None, "")))
            raise ConfigError(
                f"Each of the rows must have the keys {fields}, found {told!r:.80}. Name a "
                f"file that the same bench wrote with --json."
            ) from error


@dataclass(frozen=True, slots=True)
class Timed:
    """Repeats of two pieces of work in turn, in seconds; pairs are neighbours in time."""

    covey: tuple[float, ...]
    peer: tuple[float, ...]

    @property
    def speeds(self) -> tuple[float, ...]:
        """How many times as fast as the peer covey was, pair by pair."""
        return tuple(map(operator.truediv, self.peer, self.covey))

    @property
    def durations(self) -> tuple[float, ...]:
        """How many times as long as the peer covey took, pair by pair."""
        return tuple(map(operator.truediv, self.covey, self.peer))


def compared(
    figure: str,
    quantities: tuple[str, str],
    ratios: Sequence[float],
    limit: Limit | None,
    judged: float | None = None,
) -> Comparison:
    """Return the row of these ratios, one per pair.

    Args:
        figure: its name.
        quantities: covey's and the peer's, with their unit.
        ratios: of which the median is the figure.
        limit: None: a figure to look at; then a larger ratio is a better one.
        judged: what the limit bounds, where it has a unit of its own.
    """
    ratio = median(ratios)
    met = None if limit is None else limit.holds(ratio if judged is None else judged)
    return Comparison(
        figure,
        *quantities,
        ratio,
        (min(ratios), max(ratios)),
        "" if limit is None else str(limit),
        met,
        smaller_is_better=limit is not None and limit.at_most,
    )


def unknown(figure: str, covey: str, limit: Limit | None, note: str) -> Comparison:
    """Return the row of a figure that could not be compared, with the reason."""
    bound = "" if limit is None else str(limit)
    return Comparison(figure, covey, "-", None, None, bound, None, note=note)


@dataclass(frozen=True, slots=True)
class Change:
    """What became of a ratio since an earlier run.

    Attributes:
        factor: how many times as good as before; below 1: worse.
        worse: whether it is worse by more than was tolerated.
    """

    figure: str
    before: float
    now: float
    factor: float
    worse: bool


def changes(
    before: Iterable[Comparison], now: Iterable[Comparison], tolerance: float
) -> list[Change]:
    """Return what became of every ratio that both runs have.

    Args:
        before: an earlier run's rows.
        now: this run's.
        tolerance: by which share a ratio may be worse.
    """
    ratios = {row.figure: row.ratio for row in before if row.ratio}
    return [
        _change(row, ratios[row.figure], row.ratio, tolerance)
        for row in now
        if row.ratio and row.figure in ratios
    ]


def _change(row: Comparison, before: float, now: float, tolerance: float) -> Change:
    factor = before / now if row.smaller_is_better else now / before
    return Change(row.figure, before, now, factor, factor < 1 - tolerance)
