"""What is said of models that diverged, and which clients' figures rest on them."""

from collections.abc import Collection
from typing import Any

from covey.events import ClientExposed
from covey.history import History
from covey.membership import DIVERGED
from covey.types import round_number

__all__ = [
    "diverged_models",
    "diverged_sentences",
    "reaches_diverged",
    "sits_in_diverged",
    "touched_clusters",
    "why_unknown",
]

NOT_FINISHED = "it is measured when a run ends, and this one has not"


def diverged_models(history: History) -> list[dict[str, Any]]:
    """Return each cluster whose model is none now: since which round, and why."""
    return [
        {"cluster": j, "round": each.round_index, "reason": each.reason}
        for j, each in sorted(history.diverged.items())
    ]


def diverged_sentences(history: History) -> list[str]:
    """Return one sentence per cluster whose model is none now, for a person."""
    rounds = history.started.rounds if history.started else None
    return [
        f"the model of cluster {each['cluster']} diverged "
        f"(round {round_number(each['round'], rounds)}): "
        f"{each['reason']}"
        for each in diverged_models(history)
    ]


def sits_in_diverged(history: History) -> frozenset[int]:
    """Return the diverged clusters that some client uses."""
    return frozenset(history.diverged.keys() & set(history.assignment.values()))


def reaches_diverged(history: History, each: ClientExposed) -> bool:
    """Say whether a model that is none now was ever reached by a client's examples."""
    return not history.diverged.keys().isdisjoint(touched_clusters(history, each))


def touched_clusters(history: History, each: ClientExposed) -> set[int]:
    """Return the clusters whose model a client uses, or its examples ever reached."""
    touched = {each.cluster, *history.trained.get(each.handle, ())}
    return touched | {
        j for j, reached in history.reached.items() if each.handle in reached
    }


def why_unknown(history: History, clusters: Collection[int] = ()) -> str:
    """Say why a figure over clients is null: models diverged, or there is no truth.

    `clusters`: those that the figure rests on and that diverged.
    """
    if clusters:
        names = ", ".join(str(j) for j in sorted(clusters))
        plural = "s" if len(clusters) > 1 else ""
        return f"{DIVERGED}: it rests on the model{plural} of cluster{plural} {names}"
    return _no_truth(history) if history.exposures else NOT_FINISHED


def _no_truth(history: History) -> str:
    """Say why no model that is in use has a true risk, as its audit found."""
    users = history.clusters_of_clients()
    unknown = [a for a in history.audits if users[a.cluster] and a.true_risk is None]
    reasons = dict.fromkeys(audit.reason for audit in unknown)
    return (
        f"no model in use has a true risk: {'; '.join(reasons) or 'none was audited'}"
    )
