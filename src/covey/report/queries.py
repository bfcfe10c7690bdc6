"""What tables, trackers and pictures ask of a run, round by round and at its end."""

import csv
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from io import StringIO
from typing import Any, NamedTuple, cast

from torch import Tensor

from covey.base.events import ClusterAudited, RunFinished, RunRolledBack
from covey.base.history import History, RoundRow, of_kinds
from covey.base.names import round_number
from covey.base.risk import RiskEstimate
from covey.config.problems import choices, spec_of
from covey.config.settings import Config, flat
from covey.report.attacks import diverged_sentences
from covey.report.summary import budget_of, client_groups, number, summary

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


class Utility(NamedTuple):
    """How good models are on unseen data: accuracy, or mean squared error of numbers.

    Attributes:
        name: "accuracy" or "mean squared error".
    """

    name: str
    overall: float | None
    by_group: Mapping[str, float]


def utility_of(row: RoundRow | RunFinished | None) -> Utility:
    """Return how good the models are after a round, or at the end."""
    if row is None:
        return Utility("accuracy", None, {})
    if row.squared_error is not None:
        return Utility("mean squared error", row.squared_error, row.squared_error_by_group)
    return Utility("accuracy", row.accuracy, row.accuracy_by_group)


def utility(history: History) -> Utility:
    """Return the latest utility of all clients and of the groups."""
    return utility_of(history.finished or (history.rounds or [None])[-1])


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
    latest = history.finished or (history.rounds[-1] if history.rounds else None)
    by_group = latest.accuracy_by_group if latest else {}
    return {
        OVERALL: latest.accuracy if latest else None,
        **{group: by_group.get(group) for group in group_sizes(history)},
    }


def finish_line(history: History) -> int:
    """Return the round index of a run's end, whether or not it got there."""
    return history.started.rounds if history.started else len(history.rounds)


def home_of(history: History, group: str) -> ClusterAudited | None:
    """Return the final cluster that holds most of a group's clients."""
    groups = client_groups(history)
    chosen = Counter(j for handle, j in history.assignment.items() if groups.get(handle) == group)
    homes = [audit for audit in history.audits if chosen[audit.cluster]]
    return max(homes, key=lambda audit: chosen[audit.cluster], default=None)


UNKNOWN = "nan"
"""What every reader of CSV takes for a missing number; an empty cell might be a 0."""

Cell = int | float | None
"""A count, a figure, or a figure that is not known."""


def round_rows(history: History) -> list[dict[str, Cell]]:
    """Return one row per round: accuracy by group, clients and risk of each cluster.

    Where models answer a number, their mean squared error stands beside it. All rows have
    the same keys; a figure that is not known is None.
    """
    groups = list(group_sizes(history))
    has_errors = any(row.squared_error is not None for row in history.rounds)
    return [_round_row(row, groups, has_errors=has_errors) for row in history.rounds]


def _round_row(row: RoundRow, groups: list[str], *, has_errors: bool) -> dict[str, Cell]:
    cells: dict[str, Cell] = {"round": row.round_index, "participants": row.participants}
    cells["accuracy"] = row.accuracy
    cells |= {f"accuracy_{group}": row.accuracy_by_group.get(group) for group in groups}
    if has_errors:
        cells["squared_error"] = row.squared_error
        by_group = row.squared_error_by_group
        cells |= {f"squared_error_{group}": by_group.get(group) for group in groups}
    cells |= {f"clients_{j}": count for j, count in enumerate(row.clients)}
    for j, risk in enumerate(row.risks):
        cells |= {
            f"risk_{j}": risk.risk if risk else None,
            f"risk_se_{j}": risk.standard_error if risk else None,
        }
    return cells | {"moved": row.moved, "over": row.over}


def metrics_csv(history: History) -> str:
    """Return one line per round; figures that are not known are `nan`."""
    rows = round_rows(history)
    nothing = RoundRow(0, 0, None, {}, (), 0, (), None)
    head = _round_row(nothing, list(group_sizes(history)), has_errors=False)
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(rows[0] if rows else head)
    writer.writerows([UNKNOWN if v is None else repr(v) for v in row.values()] for row in rows)
    return text.getvalue()


@dataclass(frozen=True, slots=True)
class RoundsTable:
    """Figures of rounds as texts, as many as a person reads; every `step`-th round."""

    head: list[str]
    rows: list[list[str]]
    step: int


MOST_ROWS = 60
MOST_CLUSTERS = 8
"""Whose columns a person reads side by side; a CSV file has all."""


def rounds_table(history: History) -> RoundsTable:
    """Return the figures of a run's rounds, the newest round among them."""
    step = max(1, -(-len(history.rounds) // MOST_ROWS))
    shown = replace(history, rounds=tuple(history.rounds[::-1][::step][::-1]))
    many = bool(shown.rounds) and len(shown.rounds[0].clients) > MOST_CLUSTERS
    hidden = ("clients_", "risk_") if many else ("risk_se_",)
    rows: list[list[str]] = []
    head: list[str] = []
    for cells in round_rows(shown):
        texts = {k: _text(k, cells) for k in cells if not k.startswith(hidden)}
        head = [key.replace("_", " ") for key in texts]
        rows.append(list(texts.values()))
    return RoundsTable(head, rows, step)


def _text(column: str, cells: Mapping[str, Cell]) -> str:
    value = cells[column]
    if column == "round":
        return str(round_number(int(value or 0)))
    if not isinstance(value, float):
        return count_told(value)
    error = cells.get(column.replace("risk_", "risk_se_")) if column.startswith("risk_") else None
    return number(value) + ("" if error is None else f"±{error:.3f}")


CLUSTERS_SHOWN = 6
"""Clusters in the display; local training has one per client."""


def round_line(history: History) -> str:
    """Return the newest round's figures; there is one."""
    row, rounds = history.rounds[-1], history.started.rounds if history.started else 0
    quality = utility_of(row)
    parts = [
        f"round {row.round_index + 1}/{rounds}",
        f"{quality.name} {number(quality.overall)}",
        *(f"{name} {number(value)}" for name, value in quality.by_group.items()),
        "risk " + " ".join(risk_told(risk) for risk in row.risks[:CLUSTERS_SHOWN]),
        f"over threshold {count_told(row.over)}",
        *diverged_sentences(history)[:CLUSTERS_SHOWN],
        budget_told(history),
    ]
    return "  ".join(filter(None, parts))


def budget_told(history: History) -> str:
    """Say how many more clients can be denied; nothing where updates are not hidden."""
    budget = budget_of(history)["budget"]
    if budget is None or budget["denials_left"] is None:
        return ""
    return (
        f"denials left {budget['denials_left']}, the next request forces a replay with "
        f"probability {budget['next_forces_rollback']:.2f}"
    )


def count_told(value: int | None) -> str:
    """Return a count."""
    return "unknown" if value is None else str(value)


def risk_told(risk: RiskEstimate | None) -> str:
    """Return a risk with its standard error."""
    return "unknown" if risk is None else f"{risk.risk:.3f}±{risk.standard_error:.3f}"


OF_GROUPS = re.compile(r"(accuracy|squared_error)_(.+)")
OF_CLUSTERS = re.compile(r"(clients|risk_se|risk)_(\d+)")


def round_figures(history: History, first: int = 0) -> Iterator[tuple[int, dict[str, float]]]:
    """Yield each round from `first` on, with what `metrics.csv` holds of it and is known.

    `accuracy` or `squared_error`, the same `/GROUP`, `clients/cluster_0`, `risk/cluster_0`,
    `risk_se/cluster_0`, `participants`, `moved` and `over`.
    """
    rounds = tuple(row for row in history.rounds if row.round_index >= first)
    for row, cells in zip(rounds, round_rows(replace(history, rounds=rounds)), strict=True):
        known = {k: v for k, v in cells.items() if v is not None and k != "round"}
        yield row.round_index, {_tracked_name(k): float(v) for k, v in known.items()}


def _tracked_name(column: str) -> str:
    """Return a column's name as trackers group them: what it is, then of whom."""
    if cluster := OF_CLUSTERS.fullmatch(column):
        return f"{cluster[1]}/cluster_{cluster[2]}"
    group = OF_GROUPS.fullmatch(column)
    return f"{group[1]}/{group[2]}" if group else column


FINAL_OF_CLUSTERS = {
    "clients": "clients",
    "risk": "risk",
    "risk_se": "risk_standard_error",
    "true_risk": "true_risk",
    "true_risk_se": "true_risk_standard_error",
    "audit_auc": "auc",
}


def final_figures(history: History) -> dict[str, float]:
    """Return the figures of a run's end that are known, by names that begin with `final`.

    Of all clients and of each group the accuracy, violations and exposure; of each
    cluster the measured and the true risk with their standard errors, the AUC of the
    audit, and the risk by the strongest attack, which names it and is what violations
    follow; of each guarantee its epsilon.
    """
    run = summary(history)
    figures: dict[str, Any] = {}
    for name in ("accuracy", "squared_error"):
        figures[name] = run[name]["overall"]
        figures |= {f"{name}/{group}": value for group, value in run[name]["by_group"].items()}
    figures |= {
        "violations": run["violations"]["count"],
        "violations_lower": run["violations"]["count_lower"],
        "violations_exposed": run["violations"]["count_exposed"],
        "exposure/mean": run["exposure"]["mean"],
        "exposure/maximum": run["exposure"]["maximum"],
        "adjusted_rand_index": run["adjusted_rand_index"],
    }
    for cluster in run["clusters"]:
        of = f"cluster_{cluster['cluster']}"
        figures |= {f"{name}/{of}": cluster[key] for name, key in FINAL_OF_CLUSTERS.items()}
        if strongest := cluster["strongest_attack"]:
            attack = re.sub(r"[^\w-]", "_", strongest["attack"])
            figures[f"risk_by_{attack}/{of}"] = strongest["risk"]
    figures |= {f"epsilon/{each['unit']}": each["epsilon"] for each in run["guarantees"]}
    return {f"final/{k}": float(v) for k, v in figures.items() if v is not None}


def replays(history: History) -> int:
    """Count how often rounds were rolled back."""
    return sum(1 for _ in of_kinds(history.told, RunRolledBack))


def told_settings(config: Config) -> dict[str, Any]:
    """Return the settings that say nothing of who takes part, and of no place.

    Numbers and truths, and names of components and other choices; of tables of options
    the numbers that stand in them. Whatever is free text may hold a name, a path or a
    URL.
    """
    settings = flat(config.model_dump(mode="json"))
    return {key: value for key, value in settings.items() if _may_be_told(key, settings)}


def _may_be_told(key: str, settings: Mapping[str, object]) -> bool:
    """Say whether a setting is no free text; what a user's own calls its own may be anything."""
    above, _, option = key.rpartition(".")
    own = option != "name" and ":" in str(settings.get(f"{above}.name", ""))
    spec = None if own else spec_of(key.split("."))
    if spec is None:
        return False
    return bool(choices(spec)) or (settings[key] != [] and _without_text(settings[key]))


def _without_text(value: object) -> bool:
    if isinstance(value, Mapping):
        return all(map(_without_text, cast("Mapping[str, object]", value).values()))
    if isinstance(value, list):
        return all(map(_without_text, cast("list[object]", value)))
    return not isinstance(value, str)
