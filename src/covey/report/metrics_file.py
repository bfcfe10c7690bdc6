"""A run's rounds as rows, and as CSV."""

import csv
from io import StringIO

from covey.history import History, RoundRow
from covey.report.queries import group_sizes
from covey.risk import RiskEstimate

__all__ = ["metrics_csv", "round_rows"]

UNKNOWN = "nan"
"""What every reader of CSV takes for a missing number; an empty cell might be a 0."""

Cell = int | float | None
"""A count, a figure, or a figure that is not known."""


def metrics_csv(history: History) -> str:
    """Return one line per round; figures that are not known are `nan`."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_columns(history))
    writer.writerows(
        [UNKNOWN if value is None else repr(value) for value in row.values()]
        for row in round_rows(history)
    )
    return text.getvalue()


def round_rows(history: History) -> list[dict[str, Cell]]:
    """Return one row per round: accuracy by group, clients and risk of each cluster.

    Where models answer a number, their mean squared error stands beside it.

    A figure that is not known is None.
    """
    columns, groups = _columns(history), list(group_sizes(history))
    has_errors = bool(_error_columns(history))
    return [
        dict(zip(columns, _values(row, groups, has_errors=has_errors), strict=True))
        for row in history.rounds
    ]


def _columns(history: History) -> list[str]:
    clusters = len(history.rounds[0].clients) if history.rounds else 0
    return [
        *("round", "participants", "accuracy"),
        *(f"accuracy_{group}" for group in group_sizes(history)),
        *_error_columns(history),
        *(f"clients_{j}" for j in range(clusters)),
        *(f"{c}_{j}" for j in range(clusters) for c in ("risk", "risk_se")),
        *("moved", "over"),
    ]


def _values(row: RoundRow, groups: list[str], *, has_errors: bool) -> list[Cell]:
    return [
        *(row.round_index, row.participants, row.accuracy),
        *(row.accuracy_by_group.get(group) for group in groups),
        *(_errors(row, groups) if has_errors else ()),
        *row.clients,
        *(value for each in row.risks for value in _with_error(each)),
        *(row.moved, row.over),
    ]


def _error_columns(history: History) -> list[str]:
    if all(row.squared_error is None for row in history.rounds):
        return []
    groups = group_sizes(history)
    return ["squared_error", *(f"squared_error_{group}" for group in groups)]


def _errors(row: RoundRow, groups: list[str]) -> list[Cell]:
    by_group = row.squared_error_by_group
    return [row.squared_error, *(by_group.get(group) for group in groups)]


def _with_error(risk: RiskEstimate | None) -> tuple[float | None, float | None]:
    return (risk.risk, risk.standard_error) if risk else (None, None)
