"""What a dossier says of a run, and which events of the ledger say it.

Everything here is a fold over the ledger, so whoever has the ledger folds it again and
compares. No client is named, by name or by handle: clients are counted.

The two likelihoods of EDPB opinion 28/2024, and what a run knows of each.

The opinion (its summary, first question) asks of a model that was trained on personal
data how likely it is that they can be extracted from the model, and how likely that they
come out of queries to it.
A run's figures are evidence for an answer, and never the answer itself.

The headings of Annex IV of the AI Act, with what a run knows under each.

Regulation (EU) 2024/1689, Annex IV: technical documentation of a high-risk AI system. The
headings are named in short; what a run does not know is left to fill in, and said so.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from covey.base.history import History, pooled_clusters, trained_clusters
from covey.ledger.chain import current_records
from covey.report.attacks import LOSS, NOT_FINISHED, attacks_on, strongest
from covey.report.summary import attack_figure, by_attacks, measured_risk, summary
from covey.runtime.copies import copies_of
from covey.runtime.folder import RunFolder
from covey.runtime.ledger_record import LedgerRecord
from covey.runtime.states import checkpointed_rounds, stored_rounds

NOISE = ("SumPerturbed", "RepresentativesPerturbed", "StepsPerturbed", "ChoicesPerturbed")
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


NEVER_TRIED = (
    "No attack was run that reconstructs records from a model's parameters: covey has "
    "none. Nothing here says that it would fail."
)
NO_GUARANTEE = "No differential privacy guarantee bounds it"
QUERIES_ARE = (
    "Membership inference uses the losses that queries give: it says whether a record was "
    "trained on, to who already has the record, and nothing about who has not."
)
NOT_TRIED_QUERIES = (
    "Whether a model's answers repeat records to who does not have them was not tried."
)


def likelihoods(
    facts: Mapping[str, Any], attacks: Sequence[Mapping[str, Any]]
) -> dict[str, dict[str, list[str]]]:
    """Return, for extraction and for queries, what was measured and what is unknown.

    Args:
        facts: as `dossier_facts` returns them.
        attacks: rows of the audits that were run after training.
    """
    bounds = list(_bounds(facts))
    none = f"{NO_GUARANTEE}: {facts['guarantee_reason'] or 'no noise was added'}."
    unbounded = [] if bounds else [none]
    return {
        "extraction": {"measured": bounds, "unknown": [NEVER_TRIED, *unbounded]},
        "queries": {
            "measured": [*bounds, *_attacked(facts), *map(_audited, attacks)],
            "unknown": [QUERIES_ARE, NOT_TRIED_QUERIES, *_unmeasured(facts), *unbounded],
        },
    }


def _bounds(facts: Mapping[str, Any]) -> Iterator[str]:
    for each in facts["guarantees"]:
        if each["epsilon"] is not None:
            yield (
                f"Differential privacy of each {each['unit']}: epsilon "
                f"{each['epsilon']:.3g} at delta {each['delta']:.1g} against "
                f"{each['adversary']}. It holds only if: {'; '.join(each['holds_if'])}. "
                f"It does not cover: {'; '.join(each['does_not_cover'])}."
            )


def _attacked(facts: Mapping[str, Any]) -> Iterator[str]:
    for each in facts["models"]:
        j = each["cluster"]
        if each["true_risk"] is not None:
            yield (
                f"Model {j}: a loss threshold told members from matched non-members with "
                f"balanced accuracy "
                f"{_with_interval(each['true_risk'], each['true_risk_standard_error'])}; "
                f"0.5 is a coin. {each['true_risk_reason']}".strip()
            )
        found = each["strongest_attack"]
        if found is not None and found["attack"] != LOSS:
            yield (
                f"Model {j}: the strongest attack, {found['attack']}, reached balanced "
                f"accuracy {_with_interval(found['risk'], found['standard_error'])}."
            )
        if each["risk"] is not None:
            yield (
                f"Model {j}: the red team ({each['source']}) measured "
                f"{_with_interval(each['risk'], each['risk_standard_error'])}."
            )


def _with_interval(value: float, standard_error: float | None) -> str:
    if standard_error is None:
        return f"{value:.3f} (standard error unknown)"
    return f"{value:.3f} ± {1.96 * standard_error:.3f} (95%)"


def _unmeasured(facts: Mapping[str, Any]) -> Iterator[str]:
    for each in facts["models"]:
        figures = (each["true_risk"], each["strongest_attack"], each["risk"])
        if all(figure is None for figure in figures):
            why = each["reason"] or each["true_risk_reason"]
            yield f"Model {each['cluster']}: its membership risk is unknown: {why}."


def _audited(row: Mapping[str, Any]) -> str:
    return (
        f"Model {row['cluster']}: the attack {row['attack']} of an audit after training, "
        f"by the run's operator, reached balanced accuracy {row['balanced_accuracy']} "
        f"and AUC {row['auc']}."
    )


def lineage(folder: RunFolder, models: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return what depends on how many clients, and how many of it there are.

    Counts alone: no client and no recipient is named.

    Args:
        folder: the run's, as it is now.
        models: as `dossier_facts` has them.
    """
    copies = copies_of(folder)
    kinds = Counter(each.what for each in copies if not each.deleted)
    recipients = {each.recipient for each in copies if each.recipient}
    return [
        *(
            {
                "what": f"model {each['cluster']}",
                "count": 1,
                "depends_on_clients": each["trained_by"]
                + each["reached_by_pooling"]
                + each["left_in_it"],
            }
            for each in models
        ),
        _counted("states", len(checkpointed_rounds(folder.checkpoints))),
        _counted("rounds of stored updates", len(stored_rounds(folder.updates))),
        *(_counted(f"{kind}s written out", n) for kind, n in sorted(kinds.items())),
        _counted("recipients on record, of deleted files too", len(recipients)),
        _counted("audits", int((folder.path / "audit" / "audit.json").exists())),
        _counted("signed proofs", len(list(folder.proofs.glob("*.json")))),
    ]


def _counted(what: str, count: int) -> dict[str, Any]:
    """Return a count of things that depend on everybody who took part before them."""
    return {"what": what, "count": count, "depends_on_clients": None}


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
            ", ".join(f"{count} {name}" for name, count in sorted(facts["answers"].items()))
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
