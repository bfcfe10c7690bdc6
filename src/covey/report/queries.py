"""What tables, trackers and pictures ask of a run, round by round and at its end."""

import csv
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from io import StringIO
from typing import Any

from torch import Tensor

from covey.base.events import ClusterAudited, MetricMeasured, RunFinished, Table
from covey.base.figure import number
from covey.base.history import History, RoundRow
from covey.report.clients import client_groups, diverged_sentences
from covey.report.summary import Utility, deniability, reported_accuracy
from covey.settings.load import flat

OVERALL = "all clients"


REPORTED = "reported accuracy"

CLUSTERS_SHOWN = 6
"""Clusters in the display; local training has one per client."""


@dataclass(frozen=True, eq=False)
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

    @cached_property
    def settings(self) -> Mapping[str, Any]:
        """Its settings as `section.key` to value, lists as texts."""
        return {
            key: value if isinstance(value, (str, int, float)) else str(value)
            for key, value in flat(tomllib.loads(self.config_toml)).items()
        }

    @property
    def method(self) -> str:
        """The method's name, as it was set or else as it was recorded."""
        recorded = self.history.started.method if self.history.started else "unknown"
        return self.settings.get("method.name", recorded)

    @property
    def selection(self) -> str:
        """How clients choose, where the method lets them."""
        return self.settings.get("method.selection.name", "")


@dataclass(frozen=True, slots=True)
class NamedUtility(Utility):
    """How good models are, and by what: "accuracy", or "mean squared error" of numbers."""

    name: str


def utility_of(row: RoundRow | RunFinished | None) -> NamedUtility:
    """Return how good the models are after a round, or at the end."""
    if row is None:
        return NamedUtility(None, {}, "accuracy")
    if row.squared_error is not None:
        return NamedUtility(row.squared_error, row.squared_error_by_group, "mean squared error")
    return NamedUtility(row.accuracy, row.accuracy_by_group, "accuracy")


def utility(history: History) -> NamedUtility:
    """Return the latest utility of all clients and of the groups, or what clients report."""
    reported = reported_accuracy(history)
    return (
        NamedUtility(reported.overall, {}, REPORTED) if reported else utility_of(_latest(history))
    )


def _latest(history: History) -> RoundRow | RunFinished | None:
    return history.finished or (history.rounds[-1] if history.rounds else None)


def utility_lines(history: History) -> dict[str, list[tuple[int, float]]]:
    """Return (round, utility) of all clients and of each group, where known.

    The last point of a finished run is every client's final choice.
    """
    rows = [(row.round_index, utility_of(row)) for row in history.rounds]
    if history.finished:
        rows.append((finish_line(history), utility_of(history.finished)))
    lines: dict[str, list[tuple[int, float]]] = {}
    for name in (OVERALL, *group_sizes(history)):
        values = [(t, {OVERALL: u.overall, **u.by_group}.get(name)) for t, u in rows]
        lines[name] = [(t, value) for t, value in values if value is not None]
    return lines


def group_sizes(history: History) -> dict[str, int]:
    """Count the clients of each group, the smallest group first."""
    counts = Counter(client_groups(history).values())
    return dict(sorted(counts.items(), key=lambda item: (item[1], item[0])))


def accuracies(history: History) -> dict[str, float | None]:
    """Return the latest accuracy of all clients and, smallest first, of each group."""
    last = _latest(history)
    known = {OVERALL: last.accuracy, **last.accuracy_by_group} if last else {}
    return {name: known.get(name) for name in (OVERALL, *group_sizes(history))}


def finish_line(history: History) -> int:
    """Return the round index of a run's end, whether or not it got there."""
    return history.started.rounds if history.started else len(history.rounds)


def home_of(history: History, group: str) -> ClusterAudited | None:
    """Return the final cluster that holds most of a group's clients."""
    groups = client_groups(history)
    chosen = Counter(j for handle, j in history.assignment.items() if groups.get(handle) == group)
    homes = [audit for audit in history.audits if chosen[audit.cluster]]
    return max(homes, key=lambda audit: chosen[audit.cluster], default=None)


Column = tuple[str, str | int | None]
"""What a figure of a round is, and of which group or cluster; None: of all clients."""


def _figures(
    row: RoundRow, groups: Iterable[str], metrics: Iterable[str], *, has_errors: bool
) -> dict[Column, int | float | None]:
    """Return a round's figures, in the order of their columns; None: it is not known."""
    utilities = {"accuracy": (row.accuracy, row.accuracy_by_group)}
    if has_errors:
        utilities["squared_error"] = row.squared_error, row.squared_error_by_group
    figures: dict[Column, int | float | None] = {("round", None): row.round_index}
    figures["participants", None] = row.participants
    for name, (overall, by_group) in utilities.items():
        figures |= {
            (name, None): overall,
            **{(name, group): by_group.get(group) for group in groups},
        }
    for name in metrics:
        known = row.metrics.get(name) or MetricMeasured(name, None, {}, {})
        clusters = dict(enumerate(known.by_cluster))
        figures |= {(name, None): known.value, **{(name, g): known.by_group.get(g) for g in groups}}
        figures |= {(name, j): clusters.get(j) for j in range(len(row.clients))}
    figures |= {("clients", j): count for j, count in enumerate(row.clients)}
    for j, risk in enumerate(row.risks):
        figures |= {("risk", j): risk.value, ("risk_se", j): risk.error}
    return figures | {("moved", None): row.moved, ("over", None): row.over}


def round_rows(history: History) -> list[dict[str, int | float | None]]:
    """Return one row per round: accuracy by group, clients and risk of each cluster.

    Metrics of the settings stand there overall, by group and by cluster; where models answer
    a number, their mean squared error. All rows have the same keys; a figure that is not
    known is None.
    """
    groups = group_sizes(history)
    has_errors = any(row.squared_error is not None for row in history.rounds)
    metrics = dict.fromkeys(name for row in history.rounds for name in row.metrics)
    rows = (_figures(row, groups, metrics, has_errors=has_errors) for row in history.rounds)
    return [
        {name if of is None else f"{name}_{of}": value for (name, of), value in row.items()}
        for row in rows
    ]


def metrics_csv(history: History) -> str:
    """Return one line per round; figures that are not known are `nan`.

    Every reader of CSV takes that for a missing number; an empty cell might be a 0.
    """
    nothing = RoundRow(0, 0, None, {}, (), 0, (), None)
    rows = round_rows(history)
    head = rows or round_rows(replace(history, rounds=(nothing,)))
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head[0])
    writer.writerows(["nan" if v is None else repr(v) for v in row.values()] for row in rows)
    return text.getvalue()


def confusion_csv(counts: Mapping[str, Table]) -> str:
    """Return a line for each true class, with how many examples are taken for which one."""
    lines = ((of, c, row) for of, table in counts.items() for c, row in enumerate(table))
    return csv_of(
        [
            {"of": of, "true": true} | {f"predicted_{c}": count for c, count in enumerate(row)}
            for of, true, row in lines
        ]
    )


def csv_of(rows: Sequence[Mapping[str, object]]) -> str:
    """Return rows as CSV; what a row lacks, or has as None, is empty."""
    text = StringIO()
    columns = dict.fromkeys(name for row in rows for name in row)
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def round_figures(row: RoundRow) -> dict[str, float]:
    """Return what `metrics.csv` holds of a round and is known, under trackers' names.

    `accuracy` or `squared_error`, the same `/GROUP`, `clients/cluster_0`, `risk/cluster_0`,
    `risk_se/cluster_0`, `participants`, `moved` and `over`; metrics by their names.
    """
    groups = sorted({*row.accuracy_by_group, *row.squared_error_by_group})
    figures = _figures(row, groups, row.metrics, has_errors=row.squared_error is not None)
    del figures["round", None]
    known = ((column, value) for column, value in figures.items() if value is not None)
    return {_tracked(column): float(value) for column, value in known}


def _tracked(column: Column) -> str:
    """Return what trackers call a figure: what it is, then of whom."""
    name, of = column
    return f"{name}/cluster_{of}" if isinstance(of, int) else f"{name}/{of}" if of else name


def round_line(history: History) -> str:
    """Return the newest round's figures; there is one."""
    row, rounds = history.rounds[-1], history.started.rounds if history.started else 0
    quality, is_told = utility_of(row), reported_accuracy(history) is not None
    parts = [
        f"round {row.round_index + 1}/{rounds}",
        f"participants {row.participants}",
        f"{REPORTED if is_told else quality.name} {number(quality.overall)}",
        *(f"{name} {number(value)}" for name, value in quality.by_group.items()),
        "risk " + ", ".join(map(str, row.risks[:CLUSTERS_SHOWN])),
        f"violations {'unknown' if row.over is None else f'{row.over} {_by_red_team(history)}'}",
        *diverged_sentences(history)[:CLUSTERS_SHOWN],
        describe_budget(history),
    ]
    return "  ".join(filter(None, parts))


def _by_red_team(history: History) -> str:
    """Name what the risks in force were measured with."""
    return f"by {' and '.join(sorted({figure.source for figure in history.figures.values()}))}"


def describe_budget(history: History) -> str:
    """Say how many more clients can be denied; nothing where updates are not hidden."""
    budget = deniability(history).budget
    if budget is None or budget.denials_left is None:
        return ""
    return (
        f"denials left {budget.denials_left}, the next request forces a replay with "
        f"probability {budget.next_forces_rollback:.2f}"
    )
