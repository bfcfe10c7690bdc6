"""What the page of a run says, the same in a report and live."""

import tomllib
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import tomli_w

from covey.base.events import ClusterAudited
from covey.base.history import History
from covey.report.attacks import NOT_FINISHED, diverged_sentences
from covey.report.comparison import method_of, selection_of, settings_of
from covey.report.queries import Reported, RoundsTable, Utility, group_sizes, rounds_table, utility
from covey.report.summary import budget_of, guarantee_of, happenings, summary


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
        head: of the ledger, as far as this was added up.
    """

    guarantees: Sequence[Mapping[str, Any]]
    guarantee_reason: str
    budget: Mapping[str, Any] | None
    budget_reason: str
    planned: float | None
    left: float | None
    rounds: int
    head: str | None


@dataclass(frozen=True, slots=True)
class RunView:
    """Everything that the page of a run says, but its pictures.

    Attributes:
        is_whole: the whole ledger was read; if not, `history` lacks who is in which cluster.
        baseline: the summary of FedAvg beside it, if there is one.
        sizes: clients per group, the smallest first.
        config_toml: the settings; of clients left out only how many.
    """

    run: Reported
    is_whole: bool
    history: History
    settings: Mapping[str, Any]
    method: str
    summary: Any
    utility: Utility
    baseline: Any
    baseline_utility: Utility | None
    sizes: Mapping[str, int]
    accepted: Sequence[Accepted]
    why_not_over: str
    diverged: Sequence[str]
    baseline_diverged: Sequence[str]
    happenings: Sequence[str]
    moved: int
    rounds: RoundsTable
    config_toml: str

    @property
    def pictures(self) -> tuple[str, ...]:
        """The pictures that say something of this run, as far as it is read."""
        there = {
            "accuracy": True,
            "risk": True,
            "clusters": self.is_whole,
            "violations": self.is_whole and bool(self.history.exposures),
            "fairness": self.is_whole and bool(self.history.fairness),
            "prices": self.is_whole and bool(self.history.prices),
        }
        return tuple(name for name, is_there in there.items() if is_there)


def run_view(run: Reported, *, is_whole: bool = True) -> RunView:
    """Return what the page says of a run, but what noise guarantees: see `privacy_of`."""
    history, baseline = run.history, run.baseline
    return RunView(
        run=run,
        is_whole=is_whole,
        history=history,
        settings=settings_of(run),
        method=" ".join(filter(None, [method_of(run), selection_of(run)])),
        summary=_quick_summary(history),
        utility=utility(history),
        baseline=_quick_summary(baseline) if baseline else None,
        baseline_utility=utility(baseline) if baseline else None,
        sizes=group_sizes(history),
        accepted=[_accepted(history, j) for j in range(len(history.clusters_of_clients()))],
        why_not_over=_why_not_over(history),
        diverged=diverged_sentences(history),
        baseline_diverged=diverged_sentences(baseline) if baseline else (),
        happenings=happenings(history),
        moved=sum(row.moved for row in history.rounds),
        rounds=rounds_table(history),
        config_toml=_without_names(run.config_toml),
    )


def privacy_of(run: Reported) -> Privacy:
    """Add up what noise guarantees, and who can still be denied."""
    guarantees, budget = guarantee_of(run.history), budget_of(run.history)
    planned = settings_of(run).get("aggregation.epsilon") or None
    holds = guarantees["guarantee"]
    return Privacy(
        guarantees=guarantees["guarantees"],
        guarantee_reason=guarantees["guarantee_reason"],
        budget=budget["budget"],
        budget_reason=budget["budget_reason"],
        planned=planned,
        left=planned - holds["epsilon"] if planned and holds else None,
        rounds=len(run.history.rounds),
        head=run.ledger_head,
    )


def _quick_summary(history: History) -> Any:  # noqa: ANN401 - read by templates alone
    """Return a summary without what noise guarantees, with a line for each cluster."""
    if not history.audits and history.rounds:  # before the truth is known
        sizes = enumerate(history.clusters_of_clients())
        unknown = [ClusterAudited(j, n, *[None] * 5, reason=NOT_FINISHED) for j, n in sizes]
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
            bisect_left(accepted, figure.risk - 1.96 * figure.standard_error)
            if figure and is_known
            else None
        ),
    )


def _why_not_over(history: History) -> str:
    taus = history.started.risk_thresholds if history.started else {}
    if not history.figures:
        return "no cluster has a risk figure that counts now"
    if not taus.keys() >= history.assignment.keys():
        return "clients keep what they accept to themselves"
    return "some cluster that clients use has no risk figure that counts now"


def _without_names(config_toml: str) -> str:
    """Return the settings; of clients left out only how many, as names stay private."""
    settings = tomllib.loads(config_toml)
    left_out = settings.get("population", {}).get("exclude")
    if not left_out:
        return config_toml
    settings["population"]["exclude"] = [f"{len(left_out)} names are not shown"]
    return tomli_w.dumps(settings)
