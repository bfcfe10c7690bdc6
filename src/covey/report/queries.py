"""What tables, trackers and pictures ask of a run's story."""

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
from covey.base.risk import RiskEstimate
from covey.config.problems import choices, spec_of
from covey.config.settings import Config, flat
from covey.report.attacks import diverged_sentences
from covey.report.summary import budget_of, client_groups, summary

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
    chosen = Counter(j for handle, j in history.assignment.items() if groups.get(handle) == group)
    homes = [audit for audit in history.audits if chosen[audit.cluster]]
    return max(homes, key=lambda audit: chosen[audit.cluster], default=None)


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


CLUSTERS_SHOWN = 6
"""Clusters in the display; local training has one per client."""


def round_line(history: History) -> str:
    """Return the newest round's figures; there is one."""
    row, rounds = history.rounds[-1], history.started.rounds if history.started else 0
    found = utility_of(row)
    parts = [f"round {row.round_index + 1}/{rounds}", f"{found.name} {share_told(found.overall)}"]
    parts += [f"{name} {share_told(v)}" for name, v in found.by_group.items()]
    parts.append("risk " + " ".join(risk_told(risk) for risk in row.risks[:CLUSTERS_SHOWN]))
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


GROUPS = ("accuracy_", "squared_error_")
CLUSTERS = ("clients_", "risk_se_", "risk_")


def round_figures(history: History, first: int = 0) -> Iterator[tuple[int, dict[str, float]]]:
    """Yield each round from `first` on, with what `metrics.csv` holds of it and is known.

    `accuracy` or `squared_error`, the same `/GROUP`, `clients/cluster_0`, `risk/cluster_0`,
    `risk_se/cluster_0`, `participants`, `moved` and `over`.
    """
    rounds = tuple(row for row in history.rounds if row.round_index >= first)
    for row, cells in zip(rounds, round_rows(replace(history, rounds=rounds)), strict=True):
        known = {k: v for k, v in cells.items() if v is not None and k != "round"}
        yield row.round_index, {_name(k): float(v) for k, v in known.items()}


def _name(column: str) -> str:
    """Return a column's name as trackers group them: what it is, then of whom."""
    for prefix in GROUPS:
        if column.startswith(prefix):
            return f"{prefix.rstrip('_')}/{column.removeprefix(prefix)}"
    for prefix in CLUSTERS:
        if column.startswith(prefix):
            return f"{prefix.rstrip('_')}/cluster_{column.removeprefix(prefix)}"
    return column


def final_figures(history: History) -> dict[str, float]:
    """Return the figures of a run's end that are known, by names that begin with `final`.

    Of all clients and of each group the accuracy, violations and exposure; of each
    cluster the measured and the true risk with their standard errors, the AUC of the
    audit, and the risk by the strongest attack, which names it and is what violations
    follow; of each guarantee its epsilon.
    """
    told = summary(history)
    found: dict[str, Any] = {
        "accuracy": told["accuracy"]["overall"],
        **{f"accuracy/{k}": v for k, v in told["accuracy"]["by_group"].items()},
        "squared_error": told["squared_error"]["overall"],
        **{f"squared_error/{k}": v for k, v in told["squared_error"]["by_group"].items()},
        "violations": told["violations"]["count"],
        "violations_lower": told["violations"]["count_lower"],
        "violations_exposed": told["violations"]["count_exposed"],
        "exposure/mean": told["exposure"]["mean"],
        "exposure/maximum": told["exposure"]["maximum"],
        "adjusted_rand_index": told["adjusted_rand_index"],
    }
    for each in told["clusters"]:
        for figure, key in OF_CLUSTERS.items():
            found[f"{figure}/cluster_{each['cluster']}"] = each[key]
        if strongest := each["strongest_attack"]:
            name = re.sub(r"[^\w-]", "_", strongest["attack"])
            found[f"risk_by_{name}/cluster_{each['cluster']}"] = strongest["risk"]
    for each in told["guarantees"]:
        found[f"epsilon/{each['unit']}"] = each["epsilon"]
    return {f"final/{k}": float(v) for k, v in found.items() if v is not None}


OF_CLUSTERS = {
    "clients": "clients",
    "risk": "risk",
    "risk_se": "risk_standard_error",
    "true_risk": "true_risk",
    "true_risk_se": "true_risk_standard_error",
    "audit_auc": "auc",
}


def replays(history: History) -> int:
    """Count how often rounds were rolled back."""
    return sum(1 for _ in of_kinds(history.told, RunRolledBack))


def told_settings(config: Config) -> dict[str, Any]:
    """Return the settings that say nothing of who takes part, and of no place.

    Numbers and truths, and names of components and other choices; of tables of options
    the numbers that stand in them. Whatever is free text may hold a name, a path or a
    URL.
    """
    found = flat(config.model_dump(mode="json"))
    return {key: value for key, value in found.items() if _may_be_told(key, found)}


def _may_be_told(key: str, settings: Mapping[str, object]) -> bool:
    spec = spec_of(key.split("."))
    if spec is not None and choices(spec):
        return True
    is_known = spec is not None or _is_known_option(key, settings)
    return is_known and settings[key] != [] and _without_text(settings[key])


def _is_known_option(key: str, settings: Mapping[str, object]) -> bool:
    """Say whether this is an option of a component that covey brings.

    What a user's own calls its options may be anything.
    """
    above, _, option = key.rpartition(".")
    slot = re.sub("_options$", "", re.sub("[.]options$", ".name", above))
    name = str(settings.get(slot, ":"))
    return bool(option) and ":" not in name


def _without_text(value: object) -> bool:
    if isinstance(value, Mapping):
        return all(map(_without_text, cast("Mapping[str, object]", value).values()))
    if isinstance(value, list):
        return all(map(_without_text, cast("list[object]", value)))
    return not isinstance(value, str)
