"""The only loop of covey, and the only writer of a run."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from itertools import compress

from covey.algorithms.redteam import estimate_lifetime
from covey.algorithms.round import divergences
from covey.algorithms.run_algorithm import with_hash
from covey.algorithms.state import Cohort, RoundResult, ServerState
from covey.base.errors import LedgerError
from covey.base.events import (
    BudgetSpent,
    ClientsAssigned,
    CohortSampled,
    Event,
    ModelDiverged,
    RunStarted,
)
from covey.base.history import History, with_entries
from covey.base.names import Params
from covey.base.rng import Streams
from covey.data.examples import Client
from covey.data.population import Population
from covey.engine.protocol import ScoredOnce
from covey.leaving.answers import (
    AnsweredRequest,
    cleanup,
    finish_request,
    serve_requests,
    simulated_request,
    unaffected_models,
)
from covey.leaving.replays import Rewind, newest_rewind, solved_again, subtracted_state
from covey.leaving.requests import Served
from covey.ledger.requests import Request
from covey.runs.budgets import ended_by_budgets, has_budgets, recorded_as_spent, spent
from covey.runs.ending import (
    finalize,
    gather_present,
    queue_requests,
    reported_accuracies,
    roll_back_lost_rounds,
    with_stalled_clusters,
)
from covey.runs.evaluation import (
    ModelsInUse,
    OnRound,
    accuracies,
    best_round,
    early_end,
    measured_metrics,
    played_round,
    round_measured,
    squared_errors,
    with_fewer_tests,
)
from covey.runs.folder import checkpoint_path
from covey.runs.inputs import with_keyed_digests
from covey.runs.ledger_record import records_of
from covey.runs.session import Session, quiet, rounds_of
from covey.runs.states import (
    load_state,
    newest_whole_state,
    read_updates,
    save_state,
    state_problem,
    thin,
    write_updates,
)
from covey.settings.aggregation import anonymity_of, reported_delta
from covey.settings.clients import ClientReports
from covey.settings.load import settings_hash
from covey.settings.run import BuiltRun

log = logging.getLogger(__name__)

TESTS_PER_ROUND = 2_000
"""Test images per group for the curve over rounds; the end is judged by all of them."""

OnAnswer = Callable[[AnsweredRequest], None]
"""Called with an answer that was signed, before its salt is forgotten."""

BeforeAnswer = Callable[[Session, Request], None]
"""Called before a request is served, while everything on the disk is as it was."""


def play(
    session: Session,
    until: int | None = None,
    *,
    before_answer: BeforeAnswer = quiet,
    on_answer: OnAnswer = quiet,
    on_round: OnRound | None = None,
) -> tuple[AnsweredRequest, ...]:
    """Serve pending requests and play rounds, up to the round `until` or the run's end.

    A round's events reach the ledger before its state is used. What the ledger holds
    and no checkpoint does is played again and compared, never recorded twice. Requests
    to leave are served between rounds.

    Args:
        session: the run, open to be written.
        until: the round before which to stop; None: its end.
        before_answer: called before a request is served.
        on_answer: called with each answer as it is signed, however long the replays of
            others still take; its salt is forgotten right afterwards.
        on_round: called once with each round that is recorded.

    Returns:
        The requests that were answered.

    Raises:
        LedgerMismatch: a replayed round is not the recorded one.
    """
    answered: list[AnsweredRequest] = []
    leavers: dict[str, Client | None] = {}
    until = session.run.config.rounds if until is None else until
    while True:
        session, state = _play_until_request(session, until, on_round)
        served, pending = _due_requests(session, state.round_index)
        if served is not None:
            done = finish_request(session, served, state, leavers.get(served.id))
            on_answer(done)
            session.ledger.answered(done.request, done.option.answer)
            log.info("request of %s answered: %s", done.handle, done.option.answer)
            answered.append(done)
        elif pending:
            for each in pending:
                before_answer(session, each)
                leavers[each.id] = session.client(each.handle)
            session = serve_requests(session, pending, state)
        else:
            if answered:
                session.ledger.scrub()  # of the salts as well
            return tuple(answered)


def _play_until_request(
    session: Session, until: int, on_round: OnRound | None
) -> tuple[Session, ServerState]:
    """Replay rounds without a checkpoint, then play on until a request is due, or to the end."""
    cleanup(session)
    queue_requests(session, ())
    state, on_disk = _restored(session)
    roll_back_lost_rounds(session, state.round_index)
    last, replay = session.ledger.last_round(), newest_rewind(session)
    recorded = 0 if last is None else last + 1
    test_sample = with_fewer_tests(session.run.population, TESTS_PER_ROUND)
    record, finished = session.record(), last == session.rounds == state.round_index
    history = record.history if finished else record.history_before(state.round_index)
    session.observe(history)
    while True:
        t = state.round_index
        is_end = t == rounds_of(session.run.config, history)
        if t >= recorded or is_end:
            if any(_due_requests(session, t)):
                if not on_disk:
                    _save(session, state)
                return session, state
            goes_on = t < until and (replay is None or t >= replay.event.until)
            may_end = goes_on and history.rounds and not history.ended_early
            run = session.run
            if may_end and (
                ended := early_end(history, run.config) or ended_by_budgets(run, history)
            ):
                session.append_between([ended])
                history = with_entries(history, [(None, [ended])])
            if t >= min(until, rounds_of(session.run.config, history)):
                newest = checkpoint_path(session.folder.checkpoints, t - 1)
                if state_problem(newest, session.ledger):
                    _save(session, state)  # or it may be a request's that is there
                break
        session, played = _next_round(
            session, state, test_sample, replay, history, wants_losses=on_round is not None
        )
        history = _record(session, t, played.events, recorded, history)
        on_disk = _store_round(session, played, replay, history)
        session.observe(history)
        if on_round is not None and t >= recorded:
            again = replay is not None and t < replay.event.until
            clients = session.run.population.clients
            on_round(played_round(clients, history, played.losses, again=again))
        state = played.state
    if t == rounds_of(session.run.config, history) and last != t:
        # every client chooses once more
        streams = session.secrets.at_round(t).at("round", t)
        events = finalize(session.run, state, history, streams).events
        history = _record(session, t, events, recorded, history)
        session.secrets.forget_before(t + 1)
        session.observe(history)
    return session, state


def _next_round(
    session: Session,
    state: ServerState,
    tested: Population,
    replay: Rewind | None,
    history: History,
    *,
    wants_losses: bool,
) -> tuple[Session, RoundResult]:
    """Play a round with the clients that are there, newcomers too."""
    chosen = None if replay is None else replay.solves(state.round_index)
    if chosen is not None:
        return session, _solved_again(session, state, chosen)
    before = history.all_events if has_budgets(session.run) else ()
    gone = recorded_as_spent(before) | {*spent(session.run, state, before)}
    session, present, joined = gather_present(session, gone)
    played = _round(session, present, state, tested, replay, wants_losses=wants_losses)
    if done := spent(session.run, state, (*before, *played.events)):
        played = played._replace(events=(*played.events, BudgetSpent(done)))
    new = joined if state.round_index else ()
    return session, played.preceded_by(new)


def _due_requests(session: Session, t: int) -> tuple[Request | None, Sequence[Request]]:
    """Return a request whose rounds are all played again, or else those to serve."""
    requests = session.ledger.requests()
    for each in requests:
        if each.served and Served.of(each).until <= t:
            return each, ()
    if any(each.state == "serving" for each in requests):
        return None, ()  # rounds that are owed to somebody come first
    pending = [each for each in requests if each.state == "pending"]
    fresh = None if pending else simulated_request(session, t)
    return None, pending if fresh is None else [fresh]


def _round(
    session: Session,
    present: Cohort,
    state: ServerState,
    tested: Population,
    replay: Rewind | None,
    *,
    wants_losses: bool,
) -> RoundResult:
    """Sample a cohort of the clients present, run the round and measure its result."""
    t, run = state.round_index, session.run
    streams = session.secrets.at_round(t).at("round", t)
    cohort = _cohort(run, present, streams)
    recorded, stored, unaffected = {}, None, {}
    if replay is not None and t < replay.event.until:
        recorded = replay.recorded
        if replay.calibrating:
            stored = read_updates(session.folder.updates, t, session.ledger.files)
            cohort = cohort if stored else ()
        else:
            unaffected = unaffected_models(session, t)
    clients = run.clients(cohort, t, recorded=recorded, stored=stored, untouched=[*unaffected])
    clients = replace(clients, wants_losses=wants_losses)
    played = run.algorithm.round(state, clients, streams)
    played = _with_models(played, unaffected) if unaffected else played
    reports = ClientReports() if run.client_backend is None else run.client_backend.reports()
    if run.client_backend is not None:
        refused = with_stalled_clusters(played.state, (*reports.events, *played.events))
        played = played._replace(state=refused)
    queue_requests(session, reports.leaving)
    args = (ScoredOnce(run.engine), ModelsInUse.of(played.state), tested)
    by_client = accuracies(*args) or reported_accuracies(reports.events)
    measured = round_measured(
        by_client, played.state.assignment, tested, run.num_clusters, squared_errors(*args)
    )
    metrics = measured_metrics(run.engine, *args[1:], run.config.metrics, at_end=False)
    sampled = CohortSampled(tuple(client.handle for client in cohort))
    facts = (sampled, *reports.events, *played.events, *_diverged(played), *metrics)
    return played._replace(events=(*_began(run, t), *facts, measured))


def _with_models(played: RoundResult, known: Mapping[int, Params]) -> RoundResult:
    """Return a round that ends in these models of the clusters that nothing changed."""
    models = tuple(known.get(j, model) for j, model in enumerate(played.state.clusters))
    return with_hash(played._replace(state=replace(played.state, clusters=models)))


def _solved_again(session: Session, state: ServerState, chosen: ClientsAssigned) -> RoundResult:
    """Play a round again of which the sums are known, without requests or measurements."""
    t, run = state.round_index, session.run
    everybody = run.population.clients  # whether they are there or not
    played = solved_again(run, state, everybody, chosen)
    empty = replace(run.population, clients=())
    measured = round_measured({}, played.state.assignment, empty, run.num_clusters)
    cohort = (client for client in everybody if client.handle in chosen.clusters)
    sampled = CohortSampled(tuple(client.handle for client in cohort))
    facts = (sampled, *played.events, *_diverged(played), measured)
    return played._replace(events=(*_began(run, t), *facts))


def _began(run: BuiltRun, t: int) -> tuple[Event, ...]:
    return (_started(run), *run.components_used) if t == 0 else ()


def _diverged(played: RoundResult) -> tuple[Event, ...]:
    t = played.state.round_index - 1
    reasons = divergences(played.state).items()
    return tuple(ModelDiverged(j, t, reason) for j, reason in reasons)


def _cohort(run: BuiltRun, present: Cohort, streams: Streams) -> Cohort:
    """Sample clients by an independent draw of each.

    Where privacy rests on a secret of who came, the coins are hidden.
    """
    coin = Streams.draws if run.config.privacy_plan.server_adds_noise else Streams.generator
    draws = [float(coin(streams.at("cohort", client.name)).random()) for client in present]
    return tuple(compress(present, run.config.train.takes_part(draws)))


def _started(run: BuiltRun) -> RunStarted:
    config, population = run.config, run.population
    terms = anonymity_of(config)
    return RunStarted(
        covey_version=version("covey"),
        method=config.method.name,
        config_hash=settings_hash(config),
        data_hash=run.data_hash or "",
        num_clusters=run.num_clusters,
        rounds=config.rounds,
        group_names=tuple(group.name for group in population.groups),
        groups={c.handle: c.group for c in population.clients},
        risk_thresholds={
            c.handle: c.preference.risk_threshold
            for c in population.clients
            if run.client_backend is None
        },
        risk_lifetime=estimate_lifetime(config.risk.every),
        notes=run.notes,
        deniability_threshold=terms.deniability_threshold if terms else None,
        updates_stored=config.leaving.store_updates > 0,
        secrets=config.secrets.source,
        delta=reported_delta(config),
    )


def _restored(session: Session) -> tuple[ServerState, bool]:
    """Return the state to go on from, and whether it is on the disk as it is."""
    run, ledger = session.run, session.ledger
    if (owed := subtracted_state(session)) is not None:
        return owed, False
    newest = newest_whole_state(session.folder.checkpoints, ledger)
    if newest is None:
        return run.algorithm.init(run.streams), False
    state, head = load_state(newest)
    seen = state.round_index - 1
    if ledger.head_of(seen) != head:
        raise LedgerError(
            f"The ledger must hold every round that a checkpoint has seen, but {newest} "
            f"is after round {seen} with head {head[:12]}, and the ledger has "
            f"{(ledger.head_of(seen) or 'nothing')[:12]} there. Events were removed or "
            f"exchanged: restore {ledger.location} from a copy."
        )
    present = {client.handle for client in run.population.clients}
    left = state.assignment.keys() - present
    return state.without(left), not left


def _record(
    session: Session, t: int, events: Sequence[Event], recorded: int, history: History
) -> History:
    """Append a new round, or compare one of those that are recorded with what is."""
    events = [with_keyed_digests(each, session.secrets) for each in events]
    if t < recorded:
        session.ledger.compare(t, records_of(events, t))
    else:
        session.ledger.append(t, session.following(events, t))
    return with_entries(history, [(t, events)])


def _store_round(
    session: Session, played: RoundResult, replay: Rewind | None, history: History
) -> bool:
    """Put on the disk what the settings ask to keep of a round; say if the state is."""
    config, done = session.run.config, played.state.round_index
    every = config.leaving.store_updates
    calibrated = replay is not None and replay.calibrating and done <= replay.event.until
    if every and (done - 1) % every == 0 and not calibrated:
        hashes = session.ledger.files
        write_updates(session.folder.updates, done - 1, played.stored, hashes)
    best_row = best_round(history.rounds, config.checkpoints.best)
    best = best_row and best_row.round
    due = done == config.rounds or done % config.checkpoints.every == 0
    if due or best == done - 1:
        _save(session, played.state)
        thin(session.folder.checkpoints, config.checkpoints.keep, spared=best)
    return due or best == done - 1


def _save(session: Session, state: ServerState) -> None:
    t = state.round_index - 1
    head = session.ledger.head_of(t)
    if head is not None:  # before round 0 there is nothing to save
        save_state(session.folder.checkpoints, state, head, session.ledger.files)
        session.secrets.forget_before(t + 1)
