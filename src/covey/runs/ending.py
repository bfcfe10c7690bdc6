"""The end of a run: every client chooses once more, and true risks are measured."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

from covey.aggregation.base import NOT_FINITE
from covey.algorithms.round import Stalled, divergences
from covey.algorithms.state import RoundResult, ServerState
from covey.base import events
from covey.base.figure import RiskEstimate
from covey.base.history import History, of_kinds, pooled_clusters, trained_clusters
from covey.base.metrics import fairness
from covey.base.names import Handle
from covey.base.params import model_hash
from covey.base.rng import Streams
from covey.data.examples import Client
from covey.engine.protocol import ScoredOnce
from covey.membership.truth import (
    Membership,
    audit_clusters,
    has_finite_examples,
    no_better_than_guessing,
)
from covey.runs.evaluation import (
    Accuracies,
    ModelsInUse,
    accuracies,
    adjusted_rand_index,
    labelled_predictions,
    measured_metrics,
    reported_accuracies,
    round_measured,
    squared_errors,
)
from covey.runs.head_attacks import head_attacks
from covey.runs.likelihood_ratio import bound_facts
from covey.settings.clients import ClientReports
from covey.settings.run import BuiltRun


def with_stalled_clusters(state: ServerState, facts: Sequence[events.Event]) -> ServerState:
    """Return the state of a round that may have got no update but refused ones.

    The nodes' answers are refused before a strategy sees them: where all that came were
    not finite, no model moved, and none is what its clients' training makes of it.
    """
    merged = [fact for fact in facts if isinstance(fact, events.ModelsMerged)]
    moved = any(any(event.participants) for event in merged)
    refused = any(
        isinstance(fact, events.AnswerRefused) and fact.reason.endswith(NOT_FINITE)
        for fact in facts
    )
    before = state.get_state(Stalled).clusters
    if moved or not (refused or before):
        return state.with_state(Stalled()) if before else state
    return state.with_state(Stalled(clusters=frozenset(range(len(state.clusters)))))


def finalize(run: BuiltRun, state: ServerState, history: History, streams: Streams) -> RoundResult:
    """Return the last facts of a run, which has played all its rounds.

    What rests on a model that diverged is not known: no risk, no exposure, no gap.
    """
    once = ScoredOnce(run.engine)  # clients compare models on the records that audits ask for
    everybody = replace(run, engine=once).clients(run.population.clients)
    last = run.algorithm.finalize(state, everybody, streams)
    final = last.state
    membership = _membership(run, final.assignment, history)
    diverged = _diverged(run, last, membership)
    audits = audit_clusters(
        once,
        final.clusters,
        membership,
        run.reference,
        streams.at("audit"),
        {j: divergence.reason for j, divergence in diverged.items()},
    )
    args = (once, ModelsInUse.of(final), run.population)
    reports = ClientReports() if run.client_backend is None else run.client_backend.reports()
    accuracies_known, answers = (
        accuracies(*args) or reported_accuracies(reports.events),
        labelled_predictions(*args),
    )
    comparable = answers and diverged.keys().isdisjoint(final.assignment.values())
    gaps = fairness(answers, streams.at("fairness").generator()) if answers and comparable else ()
    errors = squared_errors(*args)
    metrics = measured_metrics(run.engine, *args[1:], run.config.metrics, at_end=True)
    exposed = _exposed(run, final, history, accuracies_known, errors, audits)
    new = (divergence for divergence in diverged.values() if divergence not in last.events)
    measured = (_voided(event, diverged) for event in last.events)
    overall = round_measured(
        accuracies_known, final.assignment, run.population, run.num_clusters, errors
    )
    finished = events.RunFinished(
        model_hash=model_hash(final.clusters),
        accuracy=overall.accuracy,
        accuracy_by_group=overall.accuracy_by_group,
        adjusted_rand_index=adjusted_rand_index(final.assignment, run.population.clients),
        squared_error=overall.squared_error,
        squared_error_by_group=overall.squared_error_by_group,
    )
    first = (*reports.events, *measured, *new)
    on_heads = (
        attack
        for attack in head_attacks(run, final, streams.at("heads"))
        if attack.cluster not in diverged
    )
    bounds = bound_facts(history, final.assignment, finished.model_hash)
    attacks = (*audits, *on_heads, *bounds)
    return RoundResult(final, (*first, *attacks, *gaps, *metrics, *exposed, finished))


def _voided(fact: events.Event, diverged: Mapping[int, events.ModelDiverged]) -> events.Event:
    """Void the risk estimate of a model that turned out to have diverged."""
    if not isinstance(fact, events.RiskMeasured) or fact.cluster not in diverged:
        return fact
    none = RiskEstimate.of_diverged(diverged[fact.cluster].reason, fact.estimate.source)
    return events.RiskMeasured(fact.cluster, replace(none, round_index=fact.estimate.round_index))


def _diverged(
    run: BuiltRun, last: RoundResult, membership: Membership
) -> Mapping[int, events.ModelDiverged]:
    """Return which final models are none: as a red team found, or as can be seen now.

    A model that no client ever trained, or tried to, is what it was at the start:
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
        events.ModelDiverged(j, final.round_index, reason(j)) for j in range(len(final.clusters))
    )
    reasons = {fact.cluster: fact for fact in facts if fact.reason}
    recorded = (event for event in last.events if isinstance(event, events.ModelDiverged))
    return reasons | {event.cluster: event for event in recorded}


def _accepted(history: History) -> set[Handle]:
    """Return whose update was ever accepted.

    Where noise is accounted for, who was refused is assigned all the same, as one that
    sent 0; the refusal then precedes the assignment.
    """
    accepted: set[Handle] = set()
    refused: set[Handle] = set()
    for fact in of_kinds(history.all_events, events.AnswerRefused, events.ClientsAssigned):
        if isinstance(fact, events.AnswerRefused) and fact.handle:
            refused.add(fact.handle)
        if isinstance(fact, events.ClientsAssigned) and fact.by != "final":
            accepted |= fact.clusters.keys() - refused
            refused = set()
    return accepted


def _membership(run: BuiltRun, assignment: Mapping[Handle, int], history: History) -> Membership:
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
    accuracies: Accuracies,
    errors: Mapping[Handle, float],
    audits: Sequence[events.ClusterAudited],
) -> tuple[events.ClientExposed, ...]:
    """Return each client's risk at the end, and the highest that it was ever part of."""
    reached = pooled_clusters(history, run.num_clusters)

    def exposed(handle: Handle) -> events.ClientExposed:
        j = final.assignment[handle]
        ever = [audits[t].exposed for t in history.trained.get(handle, ())]
        traces = [a.traced for a in audits if handle in reached[a.cluster]]
        risks = (*ever, *traces, audits[j].truth.figure)
        unknown = (risk for risk in risks if risk.value is None)
        exposure = next(unknown, None) or max(risks, key=float)
        return events.ClientExposed(handle, j, accuracies.get(handle), exposure, errors.get(handle))

    return tuple(
        exposed(client.handle)
        for client in run.population.clients
        if client.handle in final.assignment
    )
