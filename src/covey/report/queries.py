"""What tables and figures ask of a run's story."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from covey.events import ClusterAudited, RunFinished
from covey.history import History, RoundRow
from covey.report.run_summary import client_groups

__all__ = [
    "OVERALL",
    "Reported",
    "accuracies",
    "finish_line",
    "group_sizes",
    "home_of",
    "utility",
    "utility_lines",
    "utility_of",
]

OVERALL = "all clients"


@dataclass(frozen=True, slots=True, eq=False)
class Reported:
    """One run, with all that its report shows.

    Attributes:
        config_toml: the resolved settings.
        samples: a few images (n, c, h, w) of each group, as its clients see them.
        baseline: FedAvg on the same data with the same seed.
    """

    name: str
    history: History
    config_toml: str
    samples: Mapping[str, Tensor] | None = None
    baseline: History | None = None
    ledger_head: str | None = None


SQUARED_ERROR = ("squared_error", "mean squared error")
ACCURACY = ("accuracy", "accuracy")


class Utility(NamedTuple):
    """How good models are on unseen data.

    Attributes:
        key: "accuracy", or "squared_error" where models answer a number.
        name: the same, for people.
    """

    key: str
    name: str
    overall: float | None
    by_group: Mapping[str, float]


def group_sizes(history: History) -> dict[str, int]:
    """Count the clients of each group, the smallest group first."""
    counts = Counter(client_groups(history).values())
    return dict(sorted(counts.items(), key=lambda item: (item[1], item[0])))


def accuracies(history: History) -> dict[str, float | None]:
    """Return the latest accuracy of all clients and, smallest first, of each group."""
    latest = history.finished or (history.rounds[-1] if history.rounds else None)
    by_group = latest.accuracy_by_group if latest else {}
    return {
        OVERALL: latest.accuracy if latest else None,
        **{group: by_group.get(group) for group in group_sizes(history)},
    }


def utility_of(row: RoundRow | RunFinished | None) -> Utility:
    """Return how good the models are: accuracy, or mean squared error of numbers."""
    if row is not None and row.squared_error is not None:
        return Utility(*SQUARED_ERROR, row.squared_error, row.squared_error_by_group)
    if row is None:
        return Utility(*ACCURACY, None, {})
    return Utility(*ACCURACY, row.accuracy, row.accuracy_by_group)


def utility(history: History) -> Utility:
    """Return the latest utility of all clients and of the groups."""
    return utility_of(history.finished or (history.rounds or [None])[-1])


def utility_lines(history: History) -> dict[str, list[tuple[int, float]]]:
    """Return (round, utility) of all clients and of each group, where known.

    The last point of a finished run is every client's final choice.
    """
    rows = [(row.round_index, utility_of(row)) for row in history.rounds]
    if end := history.finished:
        rows.append((finish_line(history), utility_of(end)))
    points = [(t, found.overall, found.by_group) for t, found in rows]
    lines: dict[str, list[tuple[int, float]]] = {}
    for name in (OVERALL, *group_sizes(history)):
        values = [
            (t, overall if name == OVERALL else by_group.get(name))
            for t, overall, by_group in points
        ]
        lines[name] = [(t, value) for t, value in values if value is not None]
    return lines


def finish_line(history: History) -> int:
    """Return the round index of a run's end, whether or not it got there."""
    return history.started.rounds if history.started else len(history.rounds)


def home_of(history: History, group: str) -> ClusterAudited | None:
    """Return the final cluster that holds most of a group's clients."""
    groups = client_groups(history)
    chosen = Counter(
        j for handle, j in history.assignment.items() if groups.get(handle) == group
    )
    homes = [audit for audit in history.audits if chosen[audit.cluster]]
    return max(homes, key=lambda audit: chosen[audit.cluster], default=None)
