"""What tables and figures ask of a run's story."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from covey.events import ClusterAudited
from covey.history import History
from covey.report.run_summary import client_groups

__all__ = [
    "OVERALL",
    "Reported",
    "accuracies",
    "accuracy_lines",
    "finish_line",
    "group_sizes",
    "home_of",
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


def accuracy_lines(history: History) -> dict[str, list[tuple[int, float]]]:
    """Return (round, accuracy) of all clients and of each group, where known.

    The last point of a finished run is every client's final choice.
    """
    points = [
        (row.round_index, row.accuracy, row.accuracy_by_group) for row in history.rounds
    ]
    if end := history.finished:
        points.append((finish_line(history), end.accuracy, end.accuracy_by_group))
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
