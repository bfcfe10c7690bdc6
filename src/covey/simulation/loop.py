"""The only loop of covey, and the only writer of a run."""

import hashlib
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version

from covey.assembly import Assembled
from covey.checkpoints import newest_checkpoint, thin
from covey.data import Population
from covey.errors import LedgerError, RunError
from covey.events import CohortSampled, Event, RunStarted, event_from, kind_and_body
from covey.history import History, after, history_of
from covey.ledger import Ledger, Record
from covey.simulation.conclusion import conclude
from covey.simulation.folder import RunFolder
from covey.simulation.measurement import (
    accuracies,
    round_measured,
    with_fewer_tests,
)
from covey.simulation.states import load_state, save_state
from covey.strategies import Cohort, ServerState, figure_lives

__all__ = ["Observer", "check_same", "play", "read_events"]

TESTS_PER_ROUND = 2_000
"""Test images per group for the curve over rounds; the end is judged by all of them."""

Observer = Callable[[History], None]
"""Called after every durable round, with the story so far."""


def play(
    run: Assembled, folder: RunFolder, observe: Observer = lambda _: None
) -> History:
    """Play a run to its end, from its newest checkpoint if there is one.

    A round's events reach the ledger before its state is used. What the ledger holds
    and no checkpoint does is played again and compared, never recorded twice.

    Raises:
        RunError: the settings or the data are not those that began the run.
        LedgerMismatch: a replayed round is not the recorded one.
        LedgerLocked: another process is playing this run.
    """
    with _opened(folder) as ledger:
        recorded = read_events(ledger)
        check_same(run, history_of(recorded), folder)
        ledger.enrol({c.handle: c.name for c in run.population.clients})
        state = _restored(run, folder, ledger)
        rounds, last = run.config.rounds, ledger.last_round()
        if last == rounds:
            return history_of(recorded)
        glance = with_fewer_tests(run.population, TESTS_PER_ROUND)
        history = history_of(each for each in recorded if each[0] < state.round_index)
        observe(history)
        for round_index in range(state.round_index, rounds):
            state, events = _round(run, state, glance)
            history = _record(ledger, (round_index, events), last, history)
            _save(run, folder, state, ledger)
            observe(history)
        events = conclude(run, state, history).events
        history = _record(ledger, (rounds, events), last, history)
        observe(history)
        return history


def read_events(ledger: Ledger) -> list[tuple[int, list[Event]]]:
    """Return every round's events, in order."""
    rounds: dict[int, list[Event]] = {}
    for record in ledger.replay():
        event = event_from(record.kind, record.body)
        rounds.setdefault(record.round_index, []).append(event)
    return sorted(rounds.items())


def _round(
    run: Assembled, state: ServerState, tested: Population
) -> tuple[ServerState, tuple[Event, ...]]:
    """Sample a cohort, play the round, and look at what came out of it."""
    t = state.round_index
    streams = run.streams.at("round", t)
    cohort = _cohort(run, state)
    played = run.strategy.play_round(state, cohort, streams)
    clusters, assignment = played.state.clusters, played.state.assignment
    found = accuracies(run.engine, clusters, assignment, tested)
    measured = round_measured(found, assignment, tested, run.num_clusters)
    sampled = CohortSampled(tuple(client.handle for client in cohort))
    first = (_started(run),) if t == 0 else ()
    return played.state, (*first, sampled, *played.events, measured)


def _cohort(run: Assembled, state: ServerState) -> Cohort:
    """Toss one independent coin per client, so that nobody's depends on the others."""
    share = run.config.train.participation
    coins = run.streams.at("round", state.round_index, "cohort")
    return tuple(
        client
        for client in run.population.clients
        if coins.at(client.name).generator().random() < share
    )


def _started(run: Assembled) -> RunStarted:
    config, population = run.config, run.population
    return RunStarted(
        covey_version=version("covey"),
        method=config.method.name,
        config_hash=_what_matters(run),
        data_hash=run.data_hash,
        num_clusters=run.num_clusters,
        rounds=config.rounds,
        group_names=tuple(group.name for group in population.groups),
        groups={c.handle: c.group for c in population.clients},
        risk_thresholds={
            c.handle: c.preference.risk_threshold for c in population.clients
        },
        risk_lives=figure_lives(config.redteam.every),
        notes=run.notes,
        releases=run.releases,
    )


def _what_matters(run: Assembled) -> str:
    """Hash the settings that can change a result: not how many workers found it."""
    settings = run.config.model_dump(
        mode="json", exclude={"checkpoints": True, "engine": {"workers"}}
    )
    settings["data"].pop("dir")
    return hashlib.sha256(repr(sorted(settings.items())).encode()).hexdigest()


def _opened(folder: RunFolder) -> Ledger:
    def now() -> str:
        return datetime.now(UTC).isoformat(timespec="seconds")

    if folder.ledger_path.is_file() and folder.ledger_path.stat().st_size:
        return Ledger.open(folder.ledger_path, now)
    return Ledger.create(folder.ledger_path, now)


def check_same(run: Assembled, history: History, folder: RunFolder) -> None:
    """Refuse to carry on somebody else's run."""
    began = history.started
    if began is None:
        return
    for what, before, now in (
        ("settings in config.toml", began.config_hash, _what_matters(run)),
        ("clients' data", began.data_hash, run.data_hash),
    ):
        if before != now:
            raise RunError(
                f"The {what} must be those that began the run in {folder.path}, with "
                f"hash {before[:12]}, found {now[:12]}. Put them back, or start a new "
                f"run."
            )


def _restored(run: Assembled, folder: RunFolder, ledger: Ledger) -> ServerState:
    newest = newest_checkpoint(folder.checkpoints)
    if newest is None:
        return run.strategy.init(run.streams)
    state, head = load_state(newest)
    last, seen = ledger.last_round(), state.round_index - 1
    if last is None or last < seen or (last == seen and ledger.head() != head):
        raise LedgerError(
            f"The ledger must hold every round that a checkpoint has seen, but {newest} "
            f"is after round {seen} with head {head[:12]}, and the ledger ends with "
            f"round {last}, head {ledger.head()[:12]}. Events were removed or exchanged: "
            f"restore {folder.ledger_path} from a copy."
        )
    if len(state.clusters) != run.num_clusters:
        raise RunError(
            f"{newest} holds {len(state.clusters)} cluster models and the settings ask "
            f"for {run.num_clusters}. Put back the config.toml that began this run."
        )
    return state


def _record(
    ledger: Ledger,
    played: tuple[int, Sequence[Event]],
    last: int | None,
    history: History,
) -> History:
    """Append a new round, or compare a replayed one with what is recorded."""
    round_index, events = played
    records = [Record(round_index, *kind_and_body(event)) for event in events]
    if last is not None and round_index <= last:
        ledger.compare(round_index, records)
    else:
        ledger.append(round_index, records)
    return after(history, round_index, events)


def _save(
    run: Assembled, folder: RunFolder, state: ServerState, ledger: Ledger
) -> None:
    settings = run.config.checkpoints
    finished = state.round_index == run.config.rounds
    if finished or state.round_index % settings.every == 0:
        save_state(folder.checkpoints, state, ledger.head())
        thin(folder.checkpoints, settings.keep)
