"""Rounds compared by a figure: which is the best, and whether a run ends early.

Both follow from what is recorded, so that a run that was stopped ends where it would have.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from covey.config import Config, StoppingConfig
from covey.events import RunEndedEarly
from covey.history import History, RoundRow

__all__ = ["FIGURES", "NO_FIGURE", "BestRound", "best_round", "early_end"]

NO_FIGURE = "none"


class BestRound(NamedTuple):
    """The round with the best figure; of several, the first.

    Attributes:
        round: its number, from 0.
        value: the figure.
    """

    round: int
    value: float


def best_round(
    rows: Iterable[RoundRow], figure: str, min_change: float = 0.0
) -> BestRound | None:
    """Return the best of these rounds; None: of none is the figure known."""
    value_of, sign = FIGURES[figure]
    best: BestRound | None = None
    for row in rows:
        value = value_of(row)
        if value is not None and (
            best is None or sign * (value - best.value) > min_change
        ):
            best = BestRound(row.round_index, value)
    return best


def early_end(history: History, config: Config) -> RunEndedEarly | None:
    """Return that a run ends with its latest round, if the settings want it to."""
    wanted, rows = config.stopping, history.rounds
    if wanted.figure == NO_FIGURE or len(rows) >= config.rounds:
        return None
    best = best_round(rows, wanted.figure, wanted.min_change)
    if best is None or _known_since(rows, best, wanted) < wanted.patience:
        return None
    return RunEndedEarly(
        rounds=len(rows),
        planned=config.rounds,
        figure=wanted.figure,
        best=best.value,
        best_round=best.round,
        patience=wanted.patience,
        min_change=wanted.min_change,
    )


def _known_since(
    rows: Sequence[RoundRow], best: BestRound, wanted: StoppingConfig
) -> int:
    """Count the rounds after the best one of which the figure is known."""
    value_of, _ = FIGURES[wanted.figure]
    later = (row for row in rows if row.round_index > best.round)
    return sum(value_of(row) is not None for row in later)


def _accuracy(row: RoundRow) -> float | None:
    return row.accuracy


def _lowest_accuracy(row: RoundRow) -> float | None:
    return min(row.accuracy_by_group.values(), default=None)


def _highest_risk(row: RoundRow) -> float | None:
    """Return the highest risk among clusters with clients, if all of these are known."""
    risks = [r for r, n in zip(row.risks, row.clients, strict=True) if n]
    known = [each.risk for each in risks if each is not None]
    return max(known) if known and len(known) == len(risks) else None


def _over(row: RoundRow) -> float | None:
    return None if row.over is None else float(row.over)


FIGURES: Mapping[str, tuple[Callable[[RoundRow], float | None], int]] = {
    "accuracy": (_accuracy, 1),
    "lowest-accuracy": (_lowest_accuracy, 1),
    "highest-risk": (_highest_risk, -1),
    "over": (_over, -1),
}
"""How each figure is read off a round, and whether more of it is better (1) or less."""
