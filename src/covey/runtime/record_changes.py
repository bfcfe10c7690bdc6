"""A client's records that change or leave sums, and rounds that are played again.

A client's records that change: what is owed to it until the models are solved again.

It is a subtraction, and the client is counted anew with its new records. The state without
its old ones is on the disk before the ledger says what they are now, and from there the
last round is solved again, with the choices that are recorded and with the client's own.

Sums without those who leave: written before they are answered, taken up after.

A subtraction plays one round again, the last one, from the state after it less the sums of
who leaves. That state is on the disk before the answer is recorded: whatever kills the
process then, the round begins with the same bits. Should it be damaged, the state that it
came of does as well, as the sums can be made anew from the records of those who stay.
"""

import logging
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from covey.algorithms.state import Cohort, RoundResult, ServerState
from covey.base import events
from covey.base.errors import RunError
from covey.base.files import delete_whole
from covey.base.names import Handle
from covey.runtime.copies import RENDERED
from covey.runtime.folder import checkpoint_path, checkpoint_paths, round_of
from covey.runtime.inputs import drop_old_records
from covey.runtime.ledger_record import LedgerRecord
from covey.runtime.session import Session
from covey.runtime.states import (
    delete_before,
    delete_from,
    load_state,
    set_aside_from,
    state_bytes,
    state_problem,
)
from covey.settings.clients import ClientReports
from covey.settings.run import BuiltRun

_NAME = "subtracted"
"""What the ledger calls the state's file."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Rewind:
    """The newest roll back, for whatever it was, and how its rounds are played again.

    Attributes:
        event: the roll back.
        before: what the ledger held before it.
        changed: the client whose records changed, and its cluster; None: none did.
    """

    event: events.RunRolledBack
    before: LedgerRecord
    changed: tuple[Handle, int] | None

    @property
    def calibrating(self) -> bool:
        """Whether clients calibrate stored updates instead of training."""
        return self.event.how == "calibrated"

    @cached_property
    def _choices(self) -> dict[int, events.ClientsAssigned]:
        """Which clusters clients took before, in the rounds that were taken back."""
        first = self.event.round_index
        return {
            t: event
            for t, event in self.before.events
            if t is not None and t >= first and isinstance(event, events.ClientsAssigned)
        }

    @property
    def recorded(self) -> Mapping[int, Mapping[Handle, int]]:
        """The choices by round, if they are to be kept."""
        kept = self._choices if self.event.how == "recorded" else {}
        return {t: each.clusters for t, each in kept.items()}

    def solves(self, t: int) -> events.ClientsAssigned | None:
        """Return the choices by which this round is solved again; None: it is played.

        Where sums were subtracted, the last round alone is played again, and no client gets a
        request.
        """
        if self.event.how not in ("subtracted", "changed") or t != self.event.until - 1:
            return None
        none = events.ClientsAssigned({}, "clients")  # no client was there
        chosen = self._choices.get(self.event.round_index, none)
        if self.changed is None:
            return chosen
        return replace(chosen, clusters={**chosen.clusters, self.changed[0]: self.changed[1]})

    def waits(self, t: int) -> bool:
        """Say whether the models of this round wait for a client's new records."""
        return self.changed is not None and t < self.event.until


def newest_rewind(session: Session) -> Rewind | None:
    """Return the newest roll back; None: there was none."""
    record = session.record()
    for at in reversed(range(len(record.facts))):
        event, last = record.facts[at][1], record.facts[max(at - 1, 0)][1]
        if isinstance(event, events.RunRolledBack):
            changed = None
            if event.how == "changed" and isinstance(last, events.RecordsChanged):
                changed = last.handle, last.cluster
            return Rewind(event, record.until(at), changed)
    return None


def owed_change(session: Session) -> Rewind | None:
    """Return a change of records whose models were not solved yet, or not kept."""
    rewind = newest_rewind(session)
    if rewind is None or rewind.changed is None:
        return None
    first = rewind.event.round_index
    if _is_unplayed(session, first):
        return rewind
    paths = checkpoint_paths(session.folder.checkpoints)
    later = (path for path in paths if round_of(path) >= first)
    whole = any(not state_problem(path, session.ledger) for path in later)
    return None if whole else rewind


def _is_unplayed(session: Session, first: int) -> bool:
    last = session.ledger.last_round()
    return last is None or last < first


def tend_change(session: Session) -> bool:
    """Set aside or delete what a change made obsolete; any number of times.

    Returns:
        Whether the models are owed to somebody whose records changed.
    """
    owed, folder = owed_change(session), session.folder
    if owed is None:
        finish_change(session)
        return False
    first = owed.event.round_index
    if _is_unplayed(session, first):
        set_aside_from(folder.checkpoints, first, folder.superseded)
        delete_from(folder.checkpoints, first)
        session.secrets.restart_at(first)
        for name in RENDERED:  # shows the run as it was
            delete_whole(folder.path / name)
    return True


def finish_change(session: Session) -> None:
    """Delete what a change made obsolete, once it is owed no more; may be repeated."""
    if owed_change(session) is not None:
        return
    rewind, folder = newest_rewind(session), session.folder
    if rewind is not None and rewind.changed is not None:
        for path in (folder.superseded, folder.subtracted):
            delete_whole(path)
        delete_before(folder.checkpoints, rewind.event.round_index)
    drop_old_records(folder, session.ledger, session.record().events)


def is_subtracting(session: Session) -> bool:
    """Say whether sums were subtracted for an answer that is not signed yet."""
    served = (each.served for each in session.ledger.requests())
    return any(each is not None and each.subtracts for each in served)


def keep_subtracted(
    session: Session, state: ServerState, leavers: Collection[Handle]
) -> tuple[events.Event, ...]:
    """Write the state from which the last round is played again without these clients.

    None of its models has seen them: all are those that the run begins with. Remote
    clients send the sums that are subtracted, or those who stay send theirs.

    Returns:
        What is to be recorded of those who stay and sent sums.
    """
    run, ledger = session.run, session.ledger
    known = (session.client(handle) for handle in leavers)
    there = tuple(client for client in known if client is not None)
    unknown = set(leavers) - {client.handle for client in there}
    less = run.algorithm.without(state.without(unknown), run.clients(there))
    unsolved, head = _unsolved(run, less), ledger.head_of(state.round_index - 1) or ""
    place = checkpoint_path(session.folder.subtracted, unsolved.round_index - 1)
    ledger.files.write(_NAME, place, state_bytes(unsolved, head))
    backend = run.client_backend
    return () if backend is None else tuple(_of_others(backend.reports(), frozenset(leavers)))


def _of_others(reports: ClientReports, leavers: frozenset[Handle]) -> Iterator[events.Event]:
    """Yield what has to be recorded, with nothing in it of clients that leave."""
    for event in reports.events:
        match event:
            case events.AnswersMissing(handles=handles):
                if stay := tuple(h for h in handles if h not in leavers):
                    yield replace(event, handles=stay)
            case events.AnswerRefused(handle=handle) if handle in leavers:
                pass
            case events.ClientsReported():  # of no round, and said again in the next answer
                pass
            case _:
                yield event


def subtracted_state(session: Session) -> ServerState | None:
    """Return the state before a round that is owed to an answer; None: none is.

    Raises:
        RunError: it is lost, and so is the one that it came of.
    """
    owed, rewind = owed_change(session), newest_rewind(session)
    if rewind is None or not (owed or is_subtracting(session)):
        return None
    folder, first = session.folder, rewind.event.round_index
    later = (p for p in checkpoint_paths(folder.checkpoints) if round_of(p) >= first)
    if not all(state_problem(path, session.ledger) for path in later):
        return None  # it was played, and kept
    present = {client.handle for client in session.run.population.clients}
    changed = {owed.changed[0]} if owed and owed.changed else set[Handle]()
    state = _kept(session, first)
    state = state.without((state.assignment.keys() - present) | changed)
    return replace(state, round_index=first)


def solved_again(
    run: BuiltRun, state: ServerState, present: Cohort, chosen: events.ClientsAssigned
) -> RoundResult:
    """Solve the models of a round from sums, with the choices that were recorded."""
    counted = chosen.clusters.keys()
    if run.client_backend is not None:  # who was missing when sums were counted anew
        counted &= state.assignment.keys()
    cohort = tuple(client for client in present if client.handle in counted)
    stay = {client.handle: chosen.clusters[client.handle] for client in cohort}
    there = run.clients(cohort, state.round_index)
    streams = run.streams.at("round", state.round_index)
    return run.algorithm.solve(state, replace(chosen, clusters=stay), there, streams)


def _kept(session: Session, round_index: int) -> ServerState:
    folder, ledger = session.folder, session.ledger
    path = checkpoint_path(folder.subtracted, round_index)
    if not ledger.files.problem(_NAME, path):
        return load_state(path)[0]
    log.warning("sums are made anew: no whole state in %s", folder.subtracted)
    path = checkpoint_path(folder.superseded, round_index)
    if state_problem(path, ledger):
        raise RunError(
            f"Sums are subtracted from a whole state, but neither {folder.subtracted} nor "
            f"{folder.superseded} holds the one after round {round_index}. Restore one of "
            f"them from a copy, and resume."
        )
    return _unsolved(session.run, load_state(path)[0])


def _unsolved(run: BuiltRun, state: ServerState) -> ServerState:
    return replace(state, clusters=run.algorithm.init(run.streams).clusters)
