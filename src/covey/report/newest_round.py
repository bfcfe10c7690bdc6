"""The newest round of a run in one line, for who watches it being played."""

from covey.history import History
from covey.report.divergence import diverged_sentences
from covey.report.queries import utility_of
from covey.report.run_summary import budget_of
from covey.risk import RiskEstimate

__all__ = [
    "CLUSTERS_SHOWN",
    "budget_told",
    "count_told",
    "risk_told",
    "round_line",
    "share_told",
]

CLUSTERS_SHOWN = 6
"""Clusters in the display; local training has one per client."""


def round_line(history: History) -> str:
    """Return the newest round's figures; there is one."""
    row, rounds = history.rounds[-1], history.started.rounds if history.started else 0
    found = utility_of(row)
    parts = [
        f"round {row.round_index + 1}/{rounds}",
        f"{found.name} {share_told(found.overall)}",
    ]
    parts += [f"{name} {share_told(v)}" for name, v in found.by_group.items()]
    parts.append(
        "risk " + " ".join(risk_told(risk) for risk in row.risks[:CLUSTERS_SHOWN])
    )
    parts.append(f"over threshold {count_told(row.over)}")
    parts += diverged_sentences(history)[:CLUSTERS_SHOWN]
    if sentence := budget_told(history):
        parts.append(sentence)
    return "  ".join(parts)


def budget_told(history: History) -> str:
    """Say how many more clients can be denied; nothing where updates are not hidden."""
    budget = budget_of(history)["budget"]
    if budget is None or budget["denials_left"] is None:
        return ""
    return (
        f"denials left {budget['denials_left']}, the next request forces a replay with "
        f"probability {budget['next_forces_rollback']:.2f}"
    )


def share_told(value: float | None) -> str:
    """Return a share in three decimals."""
    return "unknown" if value is None else f"{value:.3f}"


def count_told(value: int | None) -> str:
    """Return a count."""
    return "unknown" if value is None else str(value)


def risk_told(found: RiskEstimate | None) -> str:
    """Return a risk with its standard error."""
    if found is None:
        return "unknown"
    return f"{found.risk:.3f}±{found.standard_error:.3f}"
