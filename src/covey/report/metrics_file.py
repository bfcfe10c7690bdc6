"""A run's rounds as CSV."""

import csv
from io import StringIO

from covey.history import History, RoundRow
from covey.report.queries import group_sizes
from covey.risk import RiskEstimate

__all__ = ["metrics_csv"]

UNKNOWN = "nan"
"""What every reader of CSV takes for a missing number; an empty cell might be a 0."""


def metrics_csv(history: History) -> str:
    """Return one line per round; figures that are not known are `nan`."""
    groups = list(group_sizes(history))
    clusters = len(history.rounds[0].clients) if history.rounds else 0
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        [
            *("round", "participants", "accuracy"),
            *(f"accuracy_{group}" for group in groups),
            *(f"clients_{j}" for j in range(clusters)),
            *(f"{c}_{j}" for j in range(clusters) for c in ("risk", "risk_se")),
            *("moved", "over"),
        ]
    )
    writer.writerows(_cells(row, groups) for row in history.rounds)
    return text.getvalue()


def _cells(row: RoundRow, groups: list[str]) -> list[str]:
    values = [
        *(row.round_index, row.participants, row.accuracy),
        *(row.accuracy_by_group.get(group) for group in groups),
        *row.clients,
        *(value for each in row.risks for value in _with_error(each)),
        *(row.moved, row.over),
    ]
    return [UNKNOWN if value is None else repr(value) for value in values]


def _with_error(risk: RiskEstimate | None) -> tuple[float | None, float | None]:
    return (risk.risk, risk.standard_error) if risk else (None, None)
