"""The headings of Annex IV of the AI Act, with what a run knows under each.

Regulation (EU) 2024/1689, Annex IV: technical documentation of a high-risk AI system. The
headings are named in short; what a run does not know is left to fill in, and said so.
"""

from collections.abc import Mapping
from typing import Any

from covey.report.wording import by_attacks

__all__ = ["annex_iv"]

HEADINGS = {
    "1": "General description: purpose, provider, version, hardware and software, use",
    "2a": "Development: methods and steps, systems and tools of others",
    "2b": "Design: logic, choices, what it optimises for",
    "2c": "Architecture and computing resources",
    "2d": "Data: provenance, scope, labelling, cleaning",
    "2e": "Human oversight",
    "2f": "Changes that were determined in advance",
    "2g": "Validation and tests: metrics, accuracy, robustness, effects on groups",
    "2h": "Cybersecurity",
    "3": "Monitoring, functioning, control: limits, accuracy for groups, risks",
    "4": "Why the performance metrics fit",
    "5": "Risk management",
    "6": "Changes through the life cycle",
    "7": "Standards that were applied",
    "8": "EU declaration of conformity",
    "9": "Monitoring after it was put on the market",
}


def annex_iv(facts: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return every heading with what the run knows; "" where it knows nothing."""
    run, known = facts["run"], dict.fromkeys(HEADINGS, "")
    known["1"] = (
        f"Models of hash {run['model_hash'] or 'not yet known'}, trained by covey "
        f"{run['covey_version']}."
    )
    early = f" ({run['ended_early']})" if run["ended_early"] else ""
    known["2a"] = (
        f"Method {run['method']}, {run['rounds_played']} of {run['rounds_planned']} "
        f"rounds{early}, settings of hash {run['config_hash']}; components of others: "
        f"{', '.join(run['components']) or 'none'}."
    )
    known["2d"] = (
        f"Examples of {run['clients']} clients, hash "
        f"{run['data_hash'] or 'unknown to the server, as they never left the clients'}."
    )
    known["2g"] = _accuracy(facts)
    known["3"] = _limits(facts)
    known["6"] = (
        "Clients that left, by answer: "
        + (
            ", ".join(
                f"{count} {name}" for name, count in sorted(facts["answers"].items())
            )
            or "none"
        )
        + "."
    )
    return [
        {"number": number, "heading": heading, "known": known[number]}
        for number, heading in HEADINGS.items()
    ]


def _accuracy(facts: Mapping[str, Any]) -> str:
    is_number = facts["squared_error"]["overall"] is not None
    name = "Mean squared error" if is_number else "Accuracy"
    found = facts["squared_error" if is_number else "accuracy"]
    overall, groups = found["overall"], found["by_group"]
    if overall is None:
        return "Accuracy: not known before the run has finished."
    told = ", ".join(f"{name} {value:.3f}" for name, value in sorted(groups.items()))
    fairness = facts["fairness_reason"] or "gaps between groups are in the report"
    return f"{name} {overall:.3f}; by group: {told or 'none known'}; {fairness}."


def _limits(facts: Mapping[str, Any]) -> str:
    violations = facts["violations"]
    if violations["count"] is None:
        why = violations["reason"]
        return f"Clients whose risk is above what they accept: unknown: {why}."
    return (
        f"{violations['count']} clients use a model whose measured membership risk is "
        f"above what they accept{by_attacks(violations)}; "
        f"of {violations['unknown']} it is unknown."
    )
