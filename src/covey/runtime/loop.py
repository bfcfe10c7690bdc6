"""The only loop of covey, and the only writer of a run."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version

from covey.algorithms import (
    Cohort,
    RoundResult,
    ServerState,
    divergences,
    estimate_lifetime,
)
from covey.build import BuiltRun, ClientReports, ReplayOptions, anonymity_of
from covey.checkpoints import newest_checkpoint, thin
from covey.data import Client, Population
from covey.errors import LedgerError, RunError
from covey.events import (
    ClientsAssigned,
    CohortSampled,
    Event,
    ModelDiverged,
    RunRolledBack,
    RunStarted,
    kind_and_body,
)
from covey.history import History, after
from covey.ledger import REWIND, Record, Request, current
from covey.rng import Streams
from covey.runtime.evaluation import (
    accuracies,
    round_measured,
    with_fewer_tests,
)
from covey.runtime.finalization import conclude
from covey.runtime.folder import RunFolder
from covey.runtime.remote_hooks import gathered, noted, reported, rewound, stalled
from covey.runtime.session import Desk, by_entry, opened, read_history, what_matters
from covey.runtime.state_io import load_state, save_state
from covey.runtime.unlearning_executor import (
    Answered,
    drawn,
    finish,
    kept_models,
    serve,
    tidy,
)
from covey.runtime.updates import read_updates, write_updates
from covey.types import Handle

__all__ = ["Observer", "OnAnswer", "Witness", "carry_on", "play"]

log = logging.getLogger(__name__)

TESTS_PER_ROUND = 2_000
"""Test images per group for the curve over rounds; the end is judged by all of them."""

Observer = Callable[[History], None]
"""Called after every durable round, with the story so far."""

OnAnswer = Callable[[Answered], None]
"""Called with an answer that was signed, before its salt is forgotten."""

Witness = Callable[[Desk, Request], None]
"""Called before a request is served, while everything on the disk is as it was."""


def play(
    run: BuiltRun,
    folder: RunFolder,
    observe: Observer = lambda _: None,
    before_answer: Witness = lambda _, __: None,
) -> History:
    """Play a run to its end, from its newest checkpoint if there is one.

    A round's events reach the ledger before its state is used. What the ledger holds
    and no checkpoint does is played again and compared, never recorded twice. Requests
    to leave are served between rounds.

    Raises:
        RunError: the settings or the data are not those that began the run.
        LedgerMismatch: a replayed round is not the recorded one.
        LedgerLocked: another process is playing this run.
    """
    with opened(run, folder) as desk:
        return carry_on(desk, run.config.rounds, observe, before_answer)[0]


def carry_on(
    desk: Desk,
    until: int,
    observe: Observer = lambda _: None,
    before_answer: Witness = lambda _, __: None,
    on_answer: OnAnswer = lambda _: None,
) -> tuple[History, tuple[Answered, ...]]:
    """Serve who asked to leave and play on, up to the round `until` or a run's end.

    Args:
        desk: the run.
        until: the round before which to stop.
        observe: called after every round.
        before_answer: called before a request is served.
        on_answer: called with each answer as it is signed, however long the replays of
            others still take; its salt is forgotten right afterwards.

    Returns:
        The story, and the requests that were answered.
    """
    answered: list[Answered] = []
    leavers: dict[str, Client | None] = {}
    while True:
        stretch = _stretch(desk, until, observe)
        desk = stretch.desk
        if stretch.served is not None:
            leaver = leavers.get(stretch.served.id)
            done = finish(desk, stretch.served, stretch.state, leaver)
            on_answer(done)
            desk.ledger.answered(done.request, done.option.answer)
            log.info("request of %s answered: %s", done.handle, done.option.answer)
            answered.append(done)
        elif stretch.asked:
            for each in stretch.asked:
                before_answer(desk, each)
                leavers[each.id] = desk.client(each.handle)
            desk = serve(desk, stretch.asked, stretch.state)
        else:
            if answered:
                desk.ledger.scrub()  # of the salts as well
            return stretch.history, tuple(answered)


@dataclass(frozen=True, slots=True, eq=False)
class Stretch:
    """What was played until somebody had to be answered, or to the end.

    Attributes:
        asked: the requests that come next, in order.
        served: a request whose rounds have all been played again.
    """

    desk: Desk
    state: ServerState
    history: History
    asked: Sequence[Request] = ()
    served: Request | None = None


def _stretch(desk: Desk, until: int, observe: Observer) -> Stretch:
    """Replay what no checkpoint holds, and play on until somebody has to be answered."""
    tidy(desk)
    noted(desk, ())
    rounds, state = desk.run.config.rounds, _restored(desk)
    rewound(desk, state.round_index)
    last = desk.ledger.last_round()
    glance = with_fewer_tests(desk.run.population, TESTS_PER_ROUND)
    history = _told_until(desk, state.round_index)
    observe(history)
    replay = _replay(desk)
    while True:
        t = state.round_index
        if last is None or t > last or t == rounds:
            served, asked = _next(desk, t)
            if served or asked:
                _save(desk, state)
                return Stretch(desk, state, history, asked, served)
            if t >= until:
                break
        desk, here, joined = gathered(desk)
        replay = _replay(desk) if joined else replay
        played = _round(desk, here, state, glance, replay).preceded_by(
            joined if t else ()
        )
        history = _record(desk, (t, played.events), last, history)
        state = played.state
        _keep(desk, played, replay)
        observe(history)
    if t == rounds and last != t:
        history = _concluded(desk, state, history)
        observe(history)
    return Stretch(desk, state, history)


def _concluded(desk: Desk, state: ServerState, history: History) -> History:
    """Let every client choose once more, and record the end."""
    t = state.round_index
    streams = desk.secrets.at_round(t).at("round", t)
    events = conclude(desk.run, state, history, streams).events
    history = _record(desk, (t, events), desk.ledger.last_round(), history)
    desk.secrets.forget_before(t + 1)
    return history


def _told_until(desk: Desk, round_index: int) -> History:
    """Fold what is recorded, up to this round; a finished run to its end."""
    finished = desk.ledger.last_round() == desk.run.config.rounds == round_index
    return read_history(desk.ledger, None if finished else round_index)


def _next(desk: Desk, t: int) -> tuple[Request | None, Sequence[Request]]:
    """Return a request whose rounds are all played again, or else those to serve."""
    requests = desk.ledger.requests()
    for each in requests:
        if each.state == "serving" and each.note and each.note["until"] <= t:
            return each, ()
    if any(each.state == "serving" for each in requests):
        return None, ()  # rounds that are owed to somebody come first
    pending = [each for each in requests if each.state == "pending"]
    fresh = None if pending else drawn(desk, t)
    return None, pending if fresh is None else [fresh]


@dataclass(frozen=True, slots=True, eq=False)
class Replay:
    """Rounds that were rolled back, and how they are played again.

    Attributes:
        until: the first round that is played for the first time.
        calibrating: whether clients calibrate stored updates instead of training.
        run: the run with the choices that were recorded, if they are to be kept.
    """

    until: int
    calibrating: bool
    run: BuiltRun


def _replay(desk: Desk) -> Replay | None:
    records = desk.ledger.replay()
    rewinds = [i for i, record in enumerate(records) if record.kind == REWIND]
    if not rewinds:
        return None
    rewind = RunRolledBack(**records[rewinds[-1]].body)
    recorded = (
        _choices(records[: rewinds[-1]], rewind.round_index)
        if rewind.how == "recorded"
        else {}
    )
    again = desk.run.for_replay(ReplayOptions(recorded=recorded))
    return Replay(rewind.until, rewind.how == "calibrated", again)


def _choices(records: list[Record], first: int) -> dict[int, Mapping[Handle, int]]:
    """Return which cluster each client took in every round from the first one on."""
    return {
        t: event.clusters
        for t, events in by_entry(current(records))
        for event in events
        if t is not None and t >= first and isinstance(event, ClientsAssigned)
    }


def _round(
    desk: Desk,
    here: Cohort,
    state: ServerState,
    tested: Population,
    replay: Replay | None,
) -> RoundResult:
    """Sample a cohort of who is here, play the round, and look at what came of it."""
    t, run = state.round_index, desk.run
    streams = desk.secrets.at_round(t).at("round", t)
    cohort = _cohort(run, here, streams)
    if replay is not None and t < replay.until:
        run = replay.run
        if replay.calibrating:
            stored = read_updates(desk.folder.updates, t)
            run = run.for_replay(ReplayOptions(stored_updates=stored))
            cohort = cohort if stored else ()
        elif kept := kept_models(desk, t):
            run = run.for_replay(ReplayOptions(frozen_models=kept))
    played = run.strategy.play_round(state, run.clients(cohort, t), streams)
    clusters, assignment = played.state.clusters, played.state.assignment
    told = (
        ClientReports() if run.client_backend is None else run.client_backend.reports()
    )
    if run.client_backend is not None:
        refused = stalled(played.state, (*told.events, *played.events))
        played = played._replace(state=refused)
    noted(desk, told.leaving)
    found = accuracies(run.engine, clusters, assignment, tested) or reported(
        told.events
    )
    measured = round_measured(found, assignment, tested, run.num_clusters)
    sampled = CohortSampled(tuple(client.handle for client in cohort))
    first = (_started(run), *run.components_used) if t == 0 else ()
    diverged = tuple(
        ModelDiverged(j, t, reason) for j, reason in divergences(played.state).items()
    )
    events = (*first, sampled, *told.events, *played.events, *diverged, measured)
    return played._replace(events=events)


def _cohort(run: BuiltRun, here: Cohort, streams: Streams) -> Cohort:
    """Toss one independent coin per client, so that nobody's depends on the others.

    Where privacy rests on nobody knowing who came, the coins are hidden.
    """
    share = run.config.train.participation
    coins = streams.at("cohort")
    if run.config.privacy.client_noise > 0:
        coins = coins.hidden()
    return tuple(
        client for client in here if coins.at(client.name).generator().random() < share
    )


def _started(run: BuiltRun) -> RunStarted:
    config, population = run.config, run.population
    terms = anonymity_of(config)
    return RunStarted(
        covey_version=version("covey"),
        method=config.method.name,
        config_hash=what_matters(run),
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
        risk_lives=estimate_lifetime(config.redteam.every),
        notes=run.notes,
        deniability_threshold=terms.deniability_threshold if terms else None,
        updates_stored=config.unlearning.store_updates > 0,
        secrets=config.secrets.source,
        delta=terms.delta if terms and terms.accounted else config.privacy.delta,
    )


def _restored(desk: Desk) -> ServerState:
    run, ledger = desk.run, desk.ledger
    newest = newest_checkpoint(desk.folder.checkpoints)
    if newest is None:
        return run.strategy.init(run.streams)
    state, head = load_state(newest)
    seen = state.round_index - 1
    if ledger.head_of(seen) != head:
        raise LedgerError(
            f"The ledger must hold every round that a checkpoint has seen, but {newest} "
            f"is after round {seen} with head {head[:12]}, and the ledger has "
            f"{(ledger.head_of(seen) or 'nothing')[:12]} there. Events were removed or "
            f"exchanged: restore {ledger.where} from a copy."
        )
    if len(state.clusters) != run.num_clusters:
        raise RunError(
            f"{newest} holds {len(state.clusters)} cluster models and the settings ask "
            f"for {run.num_clusters}. Put back the config.toml that began this run."
        )
    present = {client.handle for client in run.population.clients}
    return state.without(state.assignment.keys() - present)


def _record(
    desk: Desk,
    played: tuple[int, Sequence[Event]],
    last: int | None,
    history: History,
) -> History:
    """Append a new round, or compare a replayed one with what is recorded."""
    round_index, events = played
    records = [Record(round_index, *kind_and_body(event)) for event in events]
    if last is not None and round_index <= last:
        desk.ledger.compare(round_index, records)
    else:
        desk.ledger.append(round_index, records)
    return after(history, round_index, events)


def _keep(desk: Desk, played: RoundResult, replay: Replay | None) -> None:
    """Put on the disk what the settings ask to keep of a round."""
    config, done = desk.run.config, played.state.round_index
    every = config.unlearning.store_updates
    calibrated = replay is not None and replay.calibrating and done <= replay.until
    if every and (done - 1) % every == 0 and not calibrated:
        write_updates(desk.folder.updates, done - 1, played.stored)
    if done == config.rounds or done % config.checkpoints.every == 0:
        _save(desk, played.state)
        thin(desk.folder.checkpoints, config.checkpoints.keep)


def _save(desk: Desk, state: ServerState) -> None:
    head = desk.ledger.head_of(state.round_index - 1)
    if head is not None:  # before round 0 there is nothing to save
        save_state(desk.folder.checkpoints, state, head)
        desk.secrets.forget_before(state.round_index)
