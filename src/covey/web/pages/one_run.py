"""One run, while it goes on and after its end."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from covey.dp import epsilon_over_rounds
from covey.history import History
from covey.report import OVERALL, budget_of
from covey.report.divergence import diverged_sentences
from covey.report.page_model import run_view
from covey.report.run_summary import client_groups, guarantee_of
from covey.report.wording import early_end_told, happenings
from covey.types import Handle
from covey.web.charts import Plot
from covey.web.followed_run import FollowedRun, Snapshot
from covey.web.plots import (
    accuracy_plot,
    epsilon_plot,
    moves_plot,
    risk_plot,
    sizes_plot,
)

__all__ = ["run_page", "state_of"]

MOST_LISTED = 50
POINTS = 10
"""Places at which the account of epsilon is drawn; each takes a moment to add up."""


@dataclass(frozen=True, slots=True)
class ClusterNow:
    """One cluster's figure beside what its clients accept.

    Attributes:
        above: clients that accept less than the figure; `above_lower`, than its 95%
            lower bound. None: the figure, or what clients accept, is unknown.
        why: what the figure rests on, or why there is none.
    """

    cluster: int
    clients: int
    risk: float | None
    standard_error: float | None
    round_index: int | None
    lowest: float | None
    middle: float | None
    above: int | None
    above_lower: int | None
    why: str


@dataclass(frozen=True, slots=True)
class Above:
    """A client that accepts less than its cluster's figure."""

    handle: Handle
    cluster: int
    accepts: float
    risk: float
    group: str


@dataclass(frozen=True, slots=True)
class LogLine:
    """One record of the ledger, newest first."""

    position: int
    round_index: int | None
    kind: str
    written_at: str
    counts: bool
    number: int


def run_page(run: FollowedRun) -> dict[str, Any]:
    """Return everything that the page of a run says."""
    snapshot = run.look()
    told = {"run": run, "snapshot": snapshot, "state": state_of(snapshot)}
    if snapshot.history.started is None:
        return {**told, "view": None}
    view: Mapping[str, Any] = run.made("run page", lambda now: _view(run, now))
    return {**told, **view, "privacy": run.made_later("privacy", _privacy_of(run))}


def state_of(snapshot: Snapshot) -> str:
    """Say in a few words how far a run is."""
    history = snapshot.history
    if history.started is None:
        return "not begun"
    if history.finished is not None:
        return early_end_told(history.ended_early) or "finished"
    return f"round {len(history.rounds)} of {history.started.rounds}"


def _view(run: FollowedRun, snapshot: Snapshot) -> dict[str, Any]:
    history = snapshot.history
    # what noise guarantees takes longer to add up, and is made apart
    quick = replace(history, told=(), hidden=())
    plots = [risk_plot(history), accuracy_plot(history), sizes_plot(history)]
    if snapshot.is_whole:
        plots.append(moves_plot(history))
    above = list(_above(history))
    return {
        "view": run_view(run.reported(replace(snapshot, history=quick))),
        "plots": {plot.key: plot for plot in plots},
        "now": [_now(snapshot, j) for j in range(_clusters(history))],
        "over": history.over(),
        "above": above[:MOST_LISTED],
        "above_rest": max(0, len(above) - MOST_LISTED),
        "why_not_over": _why_not_over(history),
        "diverged": diverged_sentences(history),
        "happenings": happenings(history)[::-1][:MOST_LISTED],
        "log": list(_log(snapshot)),
        "overall": OVERALL,
    }


def _privacy_of(run: FollowedRun) -> Any:  # noqa: ANN401 - called once for each head
    def privacy(snapshot: Snapshot) -> dict[str, Any]:
        history = snapshot.history
        merge = run.config.merge
        planned = merge.epsilon or None
        told = guarantee_of(history)
        spent = epsilon_over_rounds(history, POINTS) if told["guarantees"] else {}
        holds = told["guarantee"]
        left = planned - holds["epsilon"] if planned and holds else None
        plot: Plot | None = epsilon_plot(spent, planned) if spent else None
        return {
            **told,
            **budget_of(history),
            "planned": planned,
            "left": left,
            "plot": plot,
            "head": snapshot.head,
            "rounds": len(history.rounds),
        }

    return privacy


def _now(snapshot: Snapshot, cluster: int) -> ClusterNow:
    history = snapshot.history
    figure = history.figures.get(cluster)
    taus = history.started.risk_thresholds if history.started else {}
    inside = [h for h, j in history.assignment.items() if j == cluster]
    accepted = sorted(taus[h] for h in inside if h in taus)
    latest = [m.reason for m in history.measured if m.cluster == cluster][-1:]
    known = snapshot.is_whole and len(accepted) == len(inside)
    lower = figure.risk - 1.96 * figure.standard_error if figure else 0.0
    return ClusterNow(
        cluster=cluster,
        clients=history.clusters_of_clients()[cluster],
        risk=figure.risk if figure else None,
        standard_error=figure.standard_error if figure else None,
        round_index=figure.round_index if figure else None,
        lowest=accepted[0] if accepted else None,
        middle=median(accepted) if accepted else None,
        above=bisect_left(accepted, figure.risk) if figure and known else None,
        above_lower=bisect_left(accepted, lower) if figure and known else None,
        why=latest[0] if latest else "no red team looked at it",
    )


def _above(history: History) -> Iterator[Above]:
    """Yield who accepts less than the figure of its cluster, the widest gap first."""
    taus = history.started.risk_thresholds if history.started else {}
    groups = client_groups(history)
    found = [
        Above(handle, j, taus[handle], figure.risk, groups.get(handle, ""))
        for handle, j in history.assignment.items()
        if (figure := history.figures.get(j)) is not None
        and handle in taus
        and figure.risk > taus[handle]
    ]
    yield from sorted(found, key=lambda each: (each.accepts - each.risk, each.handle))


def _why_not_over(history: History) -> str:
    if not history.figures:
        return "no cluster has a risk figure that counts now"
    taus = history.started.risk_thresholds if history.started else {}
    if not taus.keys() >= history.assignment.keys():
        return "clients keep what they accept to themselves"
    return "some cluster that clients use has no risk figure that counts now"


def _clusters(history: History) -> int:
    return history.started.num_clusters if history.started else 0


def _log(snapshot: Snapshot) -> Iterator[LogLine]:
    ends = sorted(snapshot.times)
    for each in reversed(snapshot.latest):
        place = bisect_left(ends, each.position)
        written_at = snapshot.times[ends[place]] if place < len(ends) else ""
        yield LogLine(
            each.position,
            each.round_index,
            each.kind,
            written_at,
            each.counts,
            each.number,
        )
