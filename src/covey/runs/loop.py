"""The rounds of a run, one by one, those that are played again, and the only writer of them.

`begin` takes up a run where it is, `play_round` plays a round, `record_round` writes it down,
`conclude` ends. Who leaves in between is not decided here: `covey.leaving.case.play` calls these.

A round's events reach the ledger before its state is used. What the ledger holds and no
checkpoint does is played again and compared, never recorded twice.

Clients stop taking part once their own budgets are spent, and the run may end with it. What a
client has spent follows from the rounds that it is recorded in, rolled back ones included.
Remote clients keep account by themselves, and say when they are done.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from itertools import compress

from covey.aggregation.mean import count_of_numbers
from covey.algorithms.redteam import estimate_lifetime
from covey.algorithms.round import divergences
from covey.algorithms.state import Cohort, RoundResult, ServerState
from covey.base.events import (
    BudgetSpent,
    ClientsAssigned,
    ClientsJoined,
    CohortSampled,
    Event,
    ModelDiverged,
    RunEndedEarly,
    RunRolledBack,
    RunStarted,
)
from covey.base.history import History, of_kinds, with_entries
from covey.base.names import ClientName, Handle
from covey.base.rng import Streams
from covey.data.population import Population
from covey.engine.protocol import ScoredOnce
from covey.runs.ending import finalize, with_stalled_clusters
from covey.runs.evaluation import (
    ModelsInUse,
    OnRound,
    accuracies,
    best_round,
    early_end,
    measured_metrics,
    played_round,
    reported_accuracies,
    round_measured,
    squared_errors,
    with_fewer_tests,
)
from covey.runs.folder import checkpoint_path
from covey.runs.inputs import with_keyed_digests
from covey.runs.ledger_record import LedgerRecord, records_of
from covey.runs.session import Session, rounds_of
from covey.runs.states import (
    load_state,
    lost_rounds,
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
from covey.settings.privacy import budget_weight
from covey.settings.run import BuiltRun

TESTS_PER_ROUND = 2_000
"""Test images per group for the curve over rounds; the end is judged by all of them."""


def _has_budgets(run: BuiltRun) -> bool:
    """Say whether a client may have a budget: else nothing recorded has to be looked at."""
    return run.client_backend is not None or bool(run.config.population.epsilon_limits)


def _recorded_as_spent(facts: Iterable[Event]) -> set[Handle]:
    """Return the clients that take part no more."""
    return {handle for fact in of_kinds(facts, BudgetSpent) for handle in fact.clients}


def spent(run: BuiltRun, state: ServerState, facts: Sequence[Event]) -> tuple[Handle, ...]:
    """Return the clients whose budgets allow no further round, that are not recorded so.

    Args:
        run: with its clients and settings.
        state: of the models whose updates would be sent.
        facts: all that happened.
    """
    if not run.config.population.epsilon_limits:
        return ()
    limits = {c.handle: c.preference.epsilon_limit for c in run.population.clients}
    plan, size = run.config.privacy_plan, count_of_numbers(state.clusters[0]) - 1
    if plan.sums_gradients or not plan.noise:
        return ()
    from covey.dp.budget import fits, released

    rounds = Counter(
        h for f in of_kinds(facts, ClientsAssigned) if f.by != "final" for h in f.clusters
    )
    known = _recorded_as_spent(facts)

    def is_spent(handle: Handle, limit: float) -> bool:
        weight = budget_weight(plan, size, limit)
        if not weight:
            return True
        return not fits(released(plan, size, rounds[handle] + 1, weight), limit, plan.delta)

    left = ((h, limit) for h, limit in limits.items() if limit and h not in known)
    return tuple(handle for handle, limit in left if is_spent(handle, limit))


def _ended_by_budgets(run: BuiltRun, history: History) -> RunEndedEarly | None:
    """Return that the run ends, as too few clients have any budget left."""
    if not _has_budgets(run):
        return None
    config = run.config
    gone, played = _recorded_as_spent(history.all_events), len(history.rounds)
    left = sum(client.handle not in gone for client in run.population.clients)
    needed = max(config.min_clients, run.config.privacy_plan.min_cohort)
    if not gone or left >= needed or played >= config.rounds:
        return None
    return RunEndedEarly(played, config.rounds, "budgets", clients=left)


@dataclass(frozen=True, slots=True, eq=False)
class _Replay:
    """Rounds that were taken back, and are not all played again.

    Attributes:
        event: the roll back.
        choices: by round, which clusters clients had taken before.
    """

    event: RunRolledBack
    choices: Mapping[int, ClientsAssigned]

    @property
    def calibrates(self) -> bool:
        """Whether clients calibrate stored updates instead of training."""
        return self.event.how == "calibrated"

    @property
    def recorded(self) -> Mapping[int, Mapping[Handle, int]]:
        """The choices by round, if they are kept."""
        choices = self.choices if self.event.how == "recorded" else {}
        return {t: snapshot.clusters for t, snapshot in choices.items()}

    def solved_by(self, t: int) -> ClientsAssigned | None:
        """Return the choices by which this round is solved again; None: it is played.

        Where sums were subtracted, the last round alone is played again, and no client gets a
        request.
        """
        if self.event.how != "subtracted" or t != self.event.until - 1:
            return None
        none = ClientsAssigned({}, "clients")  # no client was there
        return self.choices.get(self.event.round_index, none)


def _replay_of(record: LedgerRecord, round_index: int) -> _Replay | None:
    """Return what of the newest roll back is still to be played, from a round on."""
    for at in reversed(range(len(record.facts))):
        event = record.facts[at][1]
        if isinstance(event, RunRolledBack):
            if event.until <= round_index:
                return None
            before = record.until(at).events
            chosen = ((t, e) for t, e in before if isinstance(e, ClientsAssigned))
            return _Replay(
                event, {t: e for t, e in chosen if t is not None and t >= event.round_index}
            )
    return None


def _solved_again(run: BuiltRun, state: ServerState, chosen: ClientsAssigned) -> RoundResult:
    """Solve the models of a round from sums, with the choices that were recorded."""
    counted = chosen.clusters.keys()
    if run.client_backend is not None:  # who was missing when sums were counted anew
        counted &= state.assignment.keys()
    cohort = tuple(client for client in run.population.clients if client.handle in counted)
    stay = {client.handle: chosen.clusters[client.handle] for client in cohort}
    present = run.clients(cohort, state.round_index)
    return run.algorithm.solve(state, replace(chosen, clusters=stay), present)


@dataclass(frozen=True, slots=True, eq=False)
class Position:
    """Where a run is, between two rounds.

    Attributes:
        state: after the last round, without those who have left.
        is_saved: whether the state is on the disk as it is.
        history: of what came before.
        tested: the clients and tests by which each round is measured.
        replay: what is played again from here on; None: nothing is.
    """

    session: Session
    state: ServerState
    is_saved: bool
    history: History
    tested: Population
    replay: _Replay | None = None

    @property
    def round_index(self) -> int:
        """The round that comes next."""
        return self.state.round_index

    @property
    def rounds(self) -> int:
        """How many rounds the run has, as far as is known here."""
        return rounds_of(self.session.run.config, self.history)

    @property
    def is_new(self) -> bool:
        """Whether the next round is not recorded, or there is none: requests may be answered."""
        t = self.round_index
        return t >= self.session.record.next_round or t == self.rounds


@dataclass(frozen=True, slots=True)
class Played:
    """A round that was played, and is not recorded.

    Attributes:
        leaving: the clients that say that they leave.
    """

    result: RoundResult
    leaving: Sequence[ClientName] = ()


def begin(
    session: Session,
    state: ServerState | None = None,
    *,
    before: int | None = None,
    solves: bool = False,
) -> Position:
    """Return where a run goes on: after the newest state that is whole, or at its beginning.

    Recorded rounds whose state was lost are rolled back where they cannot be repeated. What they
    released stays recorded; they are played anew.

    Args:
        session: the run.
        state: from which it goes on, if not from one of its checkpoints.
        before: the round from which on states are obsolete; None: none are.
        solves: whether the next round needs no client, as it is solved from sums.
    """
    is_saved, run = False, session.run
    if state is None:
        state, is_saved = _restored(session, before)
    t, last = state.round_index, session.record.next_round - 1
    if run.client_backend is not None and not solves and t <= last and t != session.rounds:
        session.append([RunRolledBack(t, last + 1, "anew")])
        session.secrets.restart_at(t)
    record = session.record
    history = record.history if last == session.rounds == t else record.history_before(t)
    session.observe(history)
    tested = with_fewer_tests(run.population, TESTS_PER_ROUND)
    return Position(session, state, is_saved, history, tested, _replay_of(record, t))


def play_round(at: Position, *, wants_losses: bool) -> tuple[Position, Played]:
    """Play the next round with the clients that are there, newcomers too; record nothing."""
    session, state, t = at.session, at.state, at.round_index
    chosen = None if at.replay is None else at.replay.solved_by(t)
    if chosen is not None:
        return at, Played(_solve_round(session.run, state, chosen))
    before = at.history.all_events if _has_budgets(session.run) else ()
    gone = _recorded_as_spent(before) | {*spent(session.run, state, before)}
    session, present, joined = _gather_present(session, gone)
    at = replace(at, session=session)
    played = _round(at, present, wants_losses=wants_losses)
    result = played.result
    if done := spent(session.run, state, (*before, *result.events)):
        result = result._replace(events=(*result.events, BudgetSpent(done)))
    return at, replace(played, result=result.preceded_by(joined if t else ()))


def record_round(at: Position, played: RoundResult, on_round: OnRound | None = None) -> Position:
    """Write a round down, or compare it with what is recorded, and store what is kept of it."""
    session, t, replay = at.session, at.round_index, at.replay
    events = [with_keyed_digests(event, session.secrets) for event in played.events]
    is_recorded = t < session.record.next_round
    if is_recorded:
        session.ledger.compare(t, records_of(events, t))
        history = with_entries(at.history, [(t, events)])
    else:
        session.append(events, t)
        history = session.record.history
    is_saved = _store_round(session, played, replay, history)
    session.observe(history)
    if on_round is not None and not is_recorded:
        clients = session.run.population.clients
        on_round(played_round(clients, history, played.losses, again=replay is not None))
    ends = replay is not None and replay.event.until <= t + 1
    return replace(
        at, state=played.state, is_saved=is_saved, history=history, replay=None if ends else replay
    )


def ended_early(at: Position) -> Position:
    """Record that the run ends before the rounds that were planned, if it does."""
    session, history = at.session, at.history
    if not history.rounds or history.ended_early:
        return at
    run = session.run
    ended = early_end(history, run.config) or _ended_by_budgets(run, history)
    if not ended:
        return at
    session.append([ended])
    return replace(at, history=session.record.history)


def conclude(at: Position) -> None:
    """Leave the run with its state on the disk; after its last round with its end recorded."""
    session, t = at.session, at.round_index
    newest = checkpoint_path(session.folder.checkpoints, t - 1)
    if state_problem(newest, session.ledger):
        save(at)  # or it may be a request's that is there
    if t == at.rounds == session.record.next_round:
        # every client chooses once more
        streams = session.secrets.at_round(t).at("round", t)
        events = finalize(session.run, at.state, at.history, streams).events
        session.append([with_keyed_digests(event, session.secrets) for event in events], t)
        session.secrets.forget_before(t + 1)
        session.observe(session.record.history)


def save(at: Position) -> Position:
    """Put the state on the disk."""
    _save(at.session, at.state)
    return replace(at, is_saved=True)


def _gather_present(
    session: Session, gone: set[Handle]
) -> tuple[Session, Cohort, tuple[Event, ...]]:
    """Let newcomers join, unless they have left, and wait for as many as a round needs.

    Who is `gone` takes part no more, whether it is there or not.

    Returns:
        The run with everybody who ever came, who is reachable now, and what is to be recorded
        of those who came since the last round.

    Raises:
        UnfinishedError: too few came in time.
    """
    backend = session.run.client_backend
    if backend is None:
        return session, tuple(c for c in session.run.population.clients if c.handle not in gone), ()
    began = session.record.history.started
    known, clients = began.groups if began else (), session.run.population.clients
    spent = {client.name for client in clients if client.handle in gone}
    names = backend.gather(
        session.run.config.min_clients,
        lambda names: session.members(names) - spent,
        [client.name for client in clients],
    )
    session = session.with_newcomers(names)
    clients = (c for c in session.run.population.clients if c.name in names)
    present = tuple(client for client in clients if client.handle not in gone)
    new = tuple(c.handle for c in present if c.handle not in known)
    return session, present, (ClientsJoined(new),) if new else ()


def _round(at: Position, present: Cohort, *, wants_losses: bool) -> Played:
    """Sample a cohort of the clients present, run the round and measure its result."""
    session, state, replay, t = at.session, at.state, at.replay, at.round_index
    run = session.run
    streams = session.secrets.at_round(t).at("round", t)
    cohort = _cohort(run, present, streams)
    recorded, stored = {}, None
    if replay is not None:
        recorded = replay.recorded
        if replay.calibrates:
            stored = read_updates(session.folder.updates, t, session.ledger.files)
            cohort = cohort if stored else ()
    clients = run.clients(cohort, t, recorded=recorded, stored=stored)
    clients = replace(clients, wants_losses=wants_losses)
    played = run.algorithm.round(state, clients, streams)
    reports = ClientReports() if run.client_backend is None else run.client_backend.reports()
    if run.client_backend is not None:
        refused = with_stalled_clusters(played.state, (*reports.events, *played.events))
        played = played._replace(state=refused)
    args = (ScoredOnce(run.engine), ModelsInUse.of(played.state), at.tested)
    by_client = accuracies(*args) or reported_accuracies(reports.events)
    measured = round_measured(
        by_client, played.state.assignment, at.tested, run.num_clusters, squared_errors(*args)
    )
    metrics = measured_metrics(run.engine, *args[1:], run.config.metrics, at_end=False)
    facts = (*reports.events, *played.events, *_diverged(played), *metrics, measured)
    events = _with_cohort(run, t, cohort, facts)
    return Played(played._replace(events=events), tuple(reports.leaving))


def _solve_round(run: BuiltRun, state: ServerState, chosen: ClientsAssigned) -> RoundResult:
    """Play a round again of which the sums are known, without requests or measurements."""
    played = _solved_again(run, state, chosen)
    empty = replace(run.population, clients=())
    measured = round_measured({}, played.state.assignment, empty, run.num_clusters)
    # whether they are there or not
    cohort = tuple(c for c in run.population.clients if c.handle in chosen.clusters)
    facts = (*played.events, *_diverged(played), measured)
    return played._replace(events=_with_cohort(run, state.round_index, cohort, facts))


def _with_cohort(
    run: BuiltRun, t: int, cohort: Cohort, facts: Iterable[Event]
) -> tuple[Event, ...]:
    """Return a round's events, with what comes first of them."""
    began = (_started(run), *run.components_used) if t == 0 else ()
    return (*began, CohortSampled(tuple(client.handle for client in cohort)), *facts)


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


def _restored(session: Session, before: int | None) -> tuple[ServerState, bool]:
    """Return the state to go on from, and whether it is on the disk as it is."""
    run, record = session.run, session.record
    newest = newest_whole_state(session.folder.checkpoints, session.ledger, before)
    if newest is None:
        return run.algorithm.init(run.streams), False
    state, head = load_state(newest)
    seen = state.round_index - 1
    if record.head_of(seen) != head:
        seen_head = (record.head_of(seen) or "nothing")[:12]
        heads = f"{seen_head} for head {head[:12]} after round {seen}"
        raise lost_rounds(session.ledger, newest, heads)
    left = state.assignment.keys() - {client.handle for client in run.population.clients}
    return state.without(left), not left


def _store_round(
    session: Session, played: RoundResult, replay: _Replay | None, history: History
) -> bool:
    """Put on the disk what the settings ask to keep of a round; say if the state is."""
    config, done = session.run.config, played.state.round_index
    every = config.leaving.store_updates
    calibrated = replay is not None and replay.calibrates
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
    head = session.record.head_of(t)
    if head is not None:  # before round 0 there is nothing to save
        save_state(session.folder.checkpoints, state, head, session.ledger.files)
        session.secrets.forget_before(t + 1)
