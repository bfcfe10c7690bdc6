"""A run as trackers are told of it: figures by readable names, and no client's."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

from covey.config import Config, flat
from covey.config.schema import choices, spec_of
from covey.events import RunRolledBack
from covey.history import History
from covey.report.metrics_file import round_rows
from covey.report.run_summary import summary
from covey.told import of_kinds

__all__ = ["final_figures", "replays", "round_figures", "told_settings"]

GROUPS = ("accuracy_", "squared_error_")
CLUSTERS = ("clients_", "risk_se_", "risk_")


def round_figures(
    history: History, first: int = 0
) -> Iterator[tuple[int, dict[str, float]]]:
    """Yield each round from `first` on, with what `metrics.csv` holds of it and is known.

    `accuracy` or `squared_error`, the same `/GROUP`, `clients/cluster_0`, `risk/cluster_0`,
    `risk_se/cluster_0`, `participants`, `moved` and `over`.
    """
    rounds = tuple(row for row in history.rounds if row.round_index >= first)
    for row, cells in zip(
        rounds, round_rows(replace(history, rounds=rounds)), strict=True
    ):
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
        **{
            f"squared_error/{k}": v
            for k, v in told["squared_error"]["by_group"].items()
        },
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
