"""What a dossier says of a run, and which events of the ledger say it.

Everything here is a fold over the ledger, so whoever has the ledger folds it again and
compares. No client is named, by name or by handle: clients are counted.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from covey.history import History, pooled_clusters, trained_clusters
from covey.ledger import current_records
from covey.report.attacks import attacks_on, strongest
from covey.report.divergence import NOT_FINISHED
from covey.report.run_summary import attack_figure, measured_risk, summary
from covey.runtime.ledger_record import LedgerRecord

__all__ = ["Trace", "dossier_facts", "traces_of"]

NOISE = (
    "SumPerturbed",
    "RepresentativesPerturbed",
    "StepsPerturbed",
    "ChoicesPerturbed",
)
RUN_FIGURES = {
    "run": ("RunStarted", "RunEndedEarly"),
    "accuracy": ("RunFinished",),
    "squared_error": ("RunFinished",),
    "violations": (
        "RunStarted",
        "ClientExposed",
        "ClusterAudited",
        "ModelAttacked",
        "ClientsReported",
    ),
    "fairness": ("FairnessMeasured",),
    "guarantees": NOISE,
    "budget": (
        "RunStarted",
        "AnonymitySetsFormed",
        "OrganisationsAttested",
        "ThresholdChanged",
        "ClientLeft",
    ),
    "answers": ("ClientLeft",),
    "clients of models": ("ClientsAssigned", "ModelsPooled", "ClientLeft"),
}
"""The kinds of events that each figure of the whole run is folded from."""

NO_SIMULATION = "only a simulation knows it, and none measured it"


@dataclass(frozen=True, slots=True)
class Trace:
    """Where in the ledger a figure comes from.

    Attributes:
        figure: its name in the facts, such as `models[0].true_risk`.
        positions: of the events, counted from 1; none: there is no such event, and the
            figure is unknown.
        hashes: of these events, which seal all that was recorded before them.
    """

    figure: str
    positions: tuple[int, ...]
    hashes: tuple[str, ...]


def dossier_facts(record: LedgerRecord) -> dict[str, Any]:
    """Return every figure of a run that follows from its ledger.

    A figure that is not known is None and has a reason beside it.
    """
    history = record.history
    told, began = summary(history), history.started
    violations = {k: v for k, v in told["violations"].items() if k != "clients"}
    return {
        "run": {
            "method": told["method"],
            "covey_version": began.covey_version if began else None,
            "config_hash": began.config_hash if began else None,
            "data_hash": began.data_hash if began else None,
            "model_hash": told["model_hash"],
            "rounds_planned": _planned(history),
            "rounds_played": told["rounds"],
            "finished": told["finished"],
            "ended_early": told["ended_early"],
            "clients": len(history.clients),
            "components": told["components"],
            "notes": told["notes"],
        },
        "models": list(_models(history)),
        "accuracy": told["accuracy"],
        "squared_error": told["squared_error"],
        "violations": violations,
        "fairness": told["fairness"],
        "fairness_reason": told["fairness_reason"],
        "guarantees": told["guarantees"],
        "guarantee_reason": told["guarantee_reason"],
        "budget": told["budget"],
        "budget_reason": told["budget_reason"],
        "answers": told["left"],
    }


def _planned(history: History) -> int | None:
    if history.ended_early:
        return history.ended_early.planned
    return history.started.rounds if history.started else None


def _models(history: History) -> Iterator[dict[str, Any]]:
    """Yield the figures of every model, with how many clients it depends on."""
    count = history.started.num_clusters if history.started else 0
    there, users = history.clients, history.clusters_of_clients()
    trained, pooled = trained_clusters(history, count), pooled_clusters(history, count)
    audits = {each.cluster: each for each in history.audits}
    for j in range(count):
        audit = audits.get(j)
        yield {
            "cluster": j,
            "clients": users[j],
            **measured_risk(history, j),
            "true_risk": audit.true_risk if audit else None,
            "true_risk_standard_error": audit.standard_error if audit else None,
            "true_risk_reason": audit.reason if audit else _why_no_truth(history),
            "true_risk_tpr_at_1": audit.tpr_at_1 if audit else None,
            "true_risk_worst_client": audit.worst_client if audit else None,
            "strongest_attack": attack_figure(strongest(attacks_on(history, j))),
            "trained_by": len(trained[j] & there),
            "reached_by_pooling": len(pooled[j] & there),
            "left_in_it": len((trained[j] | pooled[j]) - there),
        }


def _why_no_truth(history: History) -> str:
    return NOT_FINISHED if history.finished is None else NO_SIMULATION


def traces_of(record: LedgerRecord) -> tuple[Trace, ...]:
    """Return which events each figure comes from.

    Guarantees count everything that was ever released, superseded rounds included; all
    other figures are of what still counts.
    """
    counts = set(map(id, current_records(record.records)))
    history = record.history
    clusters = history.started.num_clusters if history.started else 0

    def trace(figure: str, chosen: Sequence[int]) -> Trace:
        return Trace(figure, tuple(chosen), tuple(record.hashes[p - 1] for p in chosen))

    def positions(kinds: Sequence[str], *, superseded_too: bool = False) -> list[int]:
        return [
            position
            for position, each in enumerate(record.records, start=1)
            if each.kind in kinds and (superseded_too or id(each) in counts)
        ]

    def body(position: int) -> Mapping[str, Any]:
        return record.records[position - 1].body

    found = [
        trace(figure, positions(kinds, superseded_too=figure == "guarantees"))
        for figure, kinds in RUN_FIGURES.items()
    ]
    for j in range(clusters):
        audited = [p for p in positions(["ClusterAudited"]) if body(p)["cluster"] == j]
        figure = history.figures.get(j)
        measured = [
            p
            for p in positions(["RiskMeasured"])
            if body(p)["cluster"] == j
            and (figure is None or body(p)["round_index"] == figure.round_index)
        ]
        found.append(trace(f"models[{j}].true_risk", audited[-1:]))
        found.append(trace(f"models[{j}].risk", measured[-1:]))
    return tuple(found)
