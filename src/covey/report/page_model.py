"""What one run's page says, before it is laid out."""

import tomllib
from dataclasses import dataclass, replace
from typing import Any

import tomli_w

from covey.events import ClusterAudited
from covey.history import History
from covey.report.divergence import NOT_FINISHED, diverged_sentences
from covey.report.queries import OVERALL, Reported, group_sizes, utility
from covey.report.run_labels import method_of, selection_of
from covey.report.run_summary import NO_GROUPS, summary
from covey.report.wording import by_attacks, happenings, number

__all__ = ["MOST_CLUSTERS", "run_view"]

MOST_CLUSTERS = 12


@dataclass(frozen=True, slots=True)
class KeyFigure:
    """One of the few numbers at the top; each is a text that says if it is unknown."""

    title: str
    value: str
    note: str
    baseline: str | None


def run_view(run: Reported) -> dict[str, Any]:
    """Return everything that the template needs except the pictures."""
    history = _with_clusters(run.history)
    told = summary(history)
    baseline = _with_clusters(run.baseline) if run.baseline else None
    return {
        "name": run.name,
        "method": " ".join(filter(None, [method_of(run), selection_of(run)])),
        "started": history.started,
        "played": len(history.rounds),
        "summary": told,
        "baseline": summary(baseline) if baseline else None,
        "keys": _key_figures(run.history, run.baseline),
        "groups": group_sizes(history),
        "utility": utility(history).name,
        "violations": _counts(run.history),
        "baseline_violations": _counts(run.baseline) if run.baseline else None,
        "diverged": diverged_sentences(run.history),
        "baseline_diverged": diverged_sentences(run.baseline) if run.baseline else [],
        "happenings": happenings(history),
        "moved": sum(row.moved for row in history.rounds),
        "settings": _without_names(run.config_toml),
        "ledger_head": run.ledger_head,
    }


def _with_clusters(history: History) -> History:
    """Return the history with a line per cluster, even where the truth is not known."""
    if history.audits or not history.rounds:
        return history
    return replace(
        history,
        audits=tuple(
            ClusterAudited(j, clients, *[None] * 5, reason=NOT_FINISHED)
            for j, clients in enumerate(history.clusters_of_clients())
        ),
    )


def _key_figures(history: History, baseline: History | None) -> list[KeyFigure]:
    found = utility(history)
    name = found.name.capitalize()
    accuracy = {OVERALL: found.overall, **found.by_group}
    other = utility(baseline) if baseline else None
    beside = {OVERALL: other.overall, **other.by_group} if other else {}
    sizes = group_sizes(history)
    reason = "no round has been measured"
    keys = [
        KeyFigure(
            f"{name}, {who}",
            number(accuracy.get(who), reason),
            f"{sizes[who]} clients" if who in sizes else "on unseen data",
            number(beside.get(who), reason) if baseline else None,
        )
        for who in [OVERALL, *sizes][:3]
    ]
    if not sizes:
        keys.append(
            KeyFigure(
                f"{found.name.capitalize()}, minority",
                f"unknown: {NO_GROUPS}",
                "",
                None,
            )
        )
    return [
        *keys,
        _violations_key(history, baseline),
        _agreement_key(history, baseline),
    ]


def _violations_key(history: History, baseline: History | None) -> KeyFigure:
    counts = _counts(history)
    beside = _counts(baseline) if baseline else None
    return KeyFigure(
        "Violations",
        counts["now"],
        f"by the 95% lower bound: {counts['lower']}{counts['attacks']}",
        f"{beside['now']}; lower bound: {beside['lower']}{beside['attacks']}"
        if beside
        else None,
    )


def _agreement_key(history: History, baseline: History | None) -> KeyFigure:
    return KeyFigure(
        "Adjusted Rand index",
        _agreement(history),
        "clusters against true groups; 1 is equal, 0 is chance",
        _agreement(baseline) if baseline else None,
    )


def _agreement(history: History) -> str:
    if history.finished is None:
        return number(None, NOT_FINISHED)
    return number(history.finished.adjusted_rand_index, NO_GROUPS)


def _counts(history: History) -> dict[str, str]:
    """Return the violations as texts: how many of how many, or why that is unknown."""
    found = summary(history)["violations"]
    if found["count"] is None:
        unknown = number(None, found["reason"])
        keys = ("now", "lower", "exposed", "by_group")
        return {**dict.fromkeys(keys, unknown), "attacks": ""}
    known = len(history.exposures) - found["unknown"]
    rest = f" ({found['unknown']} more unknown)" if found["unknown"] else ""
    sizes = group_sizes(history)
    by_group = [f"{found['by_group'].get(g, 0)} of {n} {g}" for g, n in sizes.items()]
    return {
        "attacks": by_attacks(found),
        "now": f"{found['count']} of {known}{rest}",
        "lower": f"{found['count_lower']} of {known}{rest}",
        "exposed": number(None, found["reason"])
        if found["count_exposed"] is None
        else f"{found['count_exposed']} of {known}{rest}",
        "by_group": ", ".join(by_group) or f"unknown: {NO_GROUPS}",
    }


def _without_names(config_toml: str) -> str:
    """Return the settings; of clients left out only how many, as names stay private."""
    settings = tomllib.loads(config_toml)
    left_out = settings.get("population", {}).get("exclude")
    if not left_out:
        return config_toml
    settings["population"]["exclude"] = [f"{len(left_out)} names are not shown"]
    return tomli_w.dumps(settings)
