"""The end of a run: every client chooses once more, and true risks are measured."""

from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import replace

from covey.algorithms import Cohort, RoundResult, ServerState, divergences
from covey.build import BuiltRun, ClientReports
from covey.data import Client
from covey.engine.scored_once import ScoredOnce
from covey.events import (
    AnswerRefused,
    ClientExposed,
    ClientsAssigned,
    ClusterAudited,
    Event,
    ModelDiverged,
    RiskMeasured,
    RunFinished,
)
from covey.history import History, pooled_clusters, trained_clusters
from covey.membership import (
    DIVERGED,
    Membership,
    audit_clusters,
    has_finite_examples,
    no_better_than_guessing,
    without_estimate,
)
from covey.metrics import fairness
from covey.params import model_hash
from covey.rng import Streams
from covey.runtime.evaluation import (
    Accuracies,
    ModelsInUse,
    accuracies,
    adjusted_rand_index,
    labelled_predictions,
    round_measured,
    squared_errors,
)
from covey.runtime.head_attacks import head_attacks
from covey.runtime.remote_hooks import reported_accuracies
from covey.told import of_kinds
from covey.types import Handle

__all__ = ["finalize"]


def finalize(
    run: BuiltRun, state: ServerState, history: History, streams: Streams
) -> RoundResult:
    """Return the last facts of a run, which has played all its rounds.

    What rests on a model that diverged is not known: no risk, no exposure, no gap.
    """
    everybody = run.clients(run.population.clients)
    last = run.strategy.conclude(state, everybody, streams)
    final = last.state
    membership = _membership(run, final.assignment, history)
    diverged = _diverged(run, last, membership)
    audits = audit_clusters(
        run.engine, final.clusters, membership, run.reference, streams.at("audit")
    )
    users = Counter(final.assignment[c.handle] for c in _assigned(run, final))
    audits = tuple(replace(audit, clients=users[audit.cluster]) for audit in audits)
    audits = tuple(
        without_estimate(audit, diverged[audit.cluster].reason)
        if audit.cluster in diverged
        else audit
        for audit in audits
    )
    args = (ScoredOnce(run.engine), ModelsInUse.of(final), run.population)
    reports = (
        ClientReports() if run.client_backend is None else run.client_backend.reports()
    )
    found, answers = (
        accuracies(*args) or reported_accuracies(reports.events),
        labelled_predictions(*args),
    )
    comparable = answers and diverged.keys().isdisjoint(final.assignment.values())
    gaps = (
        fairness(answers, streams.at("fairness").generator())
        if answers and comparable
        else ()
    )
    errors = squared_errors(*args)
    exposed = tuple(
        replace(each, squared_error=errors.get(each.handle))
        for each in _exposed(run, final, history, (found, audits))
    )
    new = (each for each in diverged.values() if each not in last.events)
    measured = (_voided(each, diverged) for each in last.events)
    finished = _finished(run, final, found, errors)
    told = (*reports.events, *measured, *new)
    on_heads = (
        each
        for each in head_attacks(run, final, history, streams.at("heads"))
        if each.cluster not in diverged
    )
    return RoundResult(final, (*told, *audits, *on_heads, *gaps, *exposed, finished))


def _voided(fact: Event, diverged: Mapping[int, ModelDiverged]) -> Event:
    """Void the risk estimate of a model that turned out to have diverged."""
    if not isinstance(fact, RiskMeasured) or fact.cluster not in diverged:
        return fact
    reason = f"{DIVERGED}: {diverged[fact.cluster].reason}"
    unknown = replace(fact, risk=None, standard_error=None, auc=None)
    return replace(unknown, members=0, non_members=0, calibrated=False, reason=reason)


def _assigned(run: BuiltRun, final: ServerState) -> Cohort:
    return tuple(c for c in run.population.clients if c.handle in final.assignment)


def _diverged(
    run: BuiltRun, last: RoundResult, membership: Membership
) -> Mapping[int, ModelDiverged]:
    """Return which final models are none: as a red team found, or as can be seen now.

    A model that nobody ever trained, and nobody tried to, is what it was at the start:
    it has not diverged.
    """
    final = last.state
    shown = divergences(final)

    def reason(j: int) -> str:
        if j in shown or not membership.trained[j]:
            return shown.get(j, "")
        judges = membership.chosen[j] or membership.trained[j]
        return no_better_than_guessing(run.engine, final.clusters[j], judges)

    facts = (
        ModelDiverged(j, final.round_index, reason(j))
        for j in range(len(final.clusters))
    )
    found = {each.cluster: each for each in facts if each.reason}
    recorded = (each for each in last.events if isinstance(each, ModelDiverged))
    return found | {each.cluster: each for each in recorded}


def _accepted(history: History) -> set[Handle]:
    """Return whose update was ever accepted.

    Where noise is accounted for, who was refused is assigned all the same, as one that
    sent 0; the refusal then precedes the assignment.
    """
    accepted: set[Handle] = set()
    refused: set[Handle] = set()
    for fact in of_kinds(history.told, AnswerRefused, ClientsAssigned):
        if isinstance(fact, AnswerRefused) and fact.handle:
            refused.add(fact.handle)
        if isinstance(fact, ClientsAssigned) and fact.by != "final":
            accepted |= fact.clusters.keys() - refused
            refused = set()
    return accepted


def _membership(
    run: BuiltRun, assignment: Mapping[Handle, int], history: History
) -> Membership:
    all_clients, clusters = run.population.clients, range(run.num_clusters)
    accepted = _accepted(history)
    broken = {c.handle for c in all_clients if not has_finite_examples(c)}
    broken |= history.refused - accepted

    def clients(handles: Set[Handle]) -> tuple[Client, ...]:
        return tuple(c for c in all_clients if c.handle in handles - broken)

    trained = trained_clusters(history, run.num_clusters)
    pooled = pooled_clusters(history, run.num_clusters)
    chosen = [{h for h, own in assignment.items() if own == j} for j in clusters]
    return Membership(
        chosen=tuple(map(clients, chosen)),
        trained=tuple(map(clients, trained)),
        pooled=tuple(map(clients, pooled)),
    )


def _exposed(
    run: BuiltRun,
    final: ServerState,
    history: History,
    measured: tuple[Accuracies, tuple[ClusterAudited, ...]],
) -> tuple[ClientExposed, ...]:
    """Return each client's risk at the end, and the highest that it was ever part of."""
    found, audits = measured
    reached = pooled_clusters(history, run.num_clusters)

    def exposed(handle: Handle) -> ClientExposed:
        j = final.assignment[handle]
        ever = [audits[t].exposed_risk for t in history.trained.get(handle, ())]
        traces = [a.traced_risk for a in audits if handle in reached[a.cluster]]
        risks = (*ever, *traces, audits[j].true_risk)
        known = [risk for risk in risks if risk is not None]
        return ClientExposed(
            handle=handle,
            cluster=j,
            accuracy=found.get(handle),
            risk=audits[j].true_risk,
            standard_error=audits[j].standard_error,
            exposure=max(known) if len(known) == len(risks) else None,
        )

    return tuple(
        exposed(client.handle)
        for client in run.population.clients
        if client.handle in final.assignment
    )


def _finished(
    run: BuiltRun,
    final: ServerState,
    found: Accuracies,
    errors: Mapping[Handle, float],
) -> RunFinished:
    overall = round_measured(
        found, final.assignment, run.population, run.num_clusters, errors
    )
    return RunFinished(
        model_hash=model_hash(final.clusters),
        accuracy=overall.accuracy,
        accuracy_by_group=overall.accuracy_by_group,
        adjusted_rand_index=adjusted_rand_index(
            final.assignment,
            run.population.clients,
        ),
        squared_error=overall.squared_error,
        squared_error_by_group=overall.squared_error_by_group,
    )
