"""What the page of a run says, the same in a report and live."""

import tomllib
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

import tomli_w

from covey.base.events import ClusterAudited
from covey.base.figure import RiskEstimate
from covey.base.history import History
from covey.dp.status import GuaranteeStatus, guarantee_status
from covey.report.attacks import NOT_FINISHED
from covey.report.comparison import settings_of
from covey.report.queries import Reported
from covey.report.summary import Deniability, Summary, deniability, summary


@dataclass(frozen=True, slots=True)
class Accepted:
    """What a cluster's clients accept, beside the figure that the red team has of it now.

    Attributes:
        above: clients that accept less than the figure; None: it is unknown, or they are.
        above_lower: clients that accept less than its 95% lower bound.
    """

    lowest: float | None
    middle: float | None
    above: int | None
    above_lower: int | None


@dataclass(frozen=True, slots=True)
class Privacy:
    """What noise guarantees and who can still be denied, which takes a moment to add up.

    Attributes:
        planned: the epsilon that was set for the whole run.
        rounds, head: as far as this was added up.
    """

    status: GuaranteeStatus
    deniability: Deniability
    planned: float | None
    rounds: int
    head: str | None

    @property
    def left(self) -> float | None:
        """What is left of the planned epsilon."""
        holds = self.status.guarantee
        if self.planned is None or holds is None or holds.epsilon is None:
            return None
        return self.planned - holds.epsilon


@dataclass(frozen=True, slots=True)
class RunView:
    """What the page of a run says that is not plain from its history, but the pictures.

    Attributes:
        is_whole: the whole ledger was read; if not, the history lacks who is in which
            cluster.
        summary: without what noise guarantees and who can be denied: see `Privacy`.
        baseline: the same of FedAvg beside it, if there is one.
        accepted: for each cluster.
        settings: as TOML; of clients left out only how many, as names stay private.
    """

    run: Reported
    is_whole: bool
    summary: Summary
    baseline: Summary | None
    accepted: Sequence[Accepted]
    settings: str


def pictures_of(run: Reported, *, is_whole: bool = True) -> tuple[str, ...]:
    """Return the pictures that say something of a run, as far as it is read."""
    history = run.history
    more = {
        "clusters": True,
        "violations": bool(history.exposures),
        "fairness": bool(history.fairness),
        "prices": bool(history.prices),
    }
    return "accuracy", "risk", *(name for name, is_there in more.items() if is_whole and is_there)


def run_view(run: Reported, *, is_whole: bool = True) -> RunView:
    """Return what the page of a run says, but what noise guarantees: see `privacy_of`."""
    settings = tomllib.loads(run.config_toml)
    if left_out := settings.get("population", {}).get("exclude"):
        settings["population"]["exclude"] = [f"{len(left_out)} names are not shown"]
    return RunView(
        run=run,
        is_whole=is_whole,
        summary=_quick_summary(run.history),
        baseline=_quick_summary(run.baseline) if run.baseline else None,
        accepted=[_accepted(run.history, j) for j in range(len(run.history.clusters_of_clients()))],
        settings=tomli_w.dumps(settings) if left_out else run.config_toml,
    )


def privacy_of(run: Reported) -> Privacy:
    """Add up what noise guarantees, and who can still be denied."""
    return Privacy(
        status=guarantee_status(run.history),
        deniability=deniability(run.history),
        planned=settings_of(run).get("aggregation.epsilon") or None,
        rounds=len(run.history.rounds),
        head=run.ledger_head,
    )


def _quick_summary(history: History) -> Summary:
    """Return a summary without what noise guarantees, with a line for each cluster."""
    if not history.audits and history.rounds:  # before the truth is known
        none, clusters = RiskEstimate.unknown(NOT_FINISHED), len(history.clusters_of_clients())
        unknown = (ClusterAudited(j, none, none.figure, none.figure) for j in range(clusters))
        history = replace(history, audits=tuple(unknown))
    return summary(replace(history, told=(), hidden=()))


def _accepted(history: History, cluster: int) -> Accepted:
    figure = history.figures.get(cluster)
    taus = history.started.risk_thresholds if history.started else {}
    inside = [handle for handle, j in history.assignment.items() if j == cluster]
    accepted = sorted(taus[handle] for handle in inside if handle in taus)
    is_known = bool(history.assignment) and len(accepted) == len(inside)
    return Accepted(
        lowest=accepted[0] if accepted else None,
        middle=median(accepted) if accepted else None,
        above=bisect_left(accepted, figure.risk) if figure and is_known else None,
        above_lower=(
            bisect_left(accepted, figure.figure.lower_bound) if figure and is_known else None
        ),
    )
