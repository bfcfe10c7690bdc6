"""Rounds that are played again, and the sums from which one of them is solved again.

A subtraction plays one round again, the last one, from the state after it less the sums of
who leaves. That state is on the disk before the answer is recorded: whatever kills the
process then, the round begins with the same bits. Should it be damaged, the state that it
came of does as well, as the sums can be made anew from the records of those who stay.
"""

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from covey.algorithms.state import Cohort, RoundResult, ServerState
from covey.base import events
from covey.base.errors import RunError
from covey.base.names import Handle, round_number
from covey.base.params import model_hash
from covey.leaving.plan import Option
from covey.leaving.requests import Served, replay_kind
from covey.runs.folder import checkpoint_path, checkpoint_paths, round_of
from covey.runs.ledger_record import LedgerRecord
from covey.runs.session import Session
from covey.runs.states import kept_state, load_state, state_bytes, state_problem
from covey.settings.clients import ClientReports
from covey.settings.ledger_terms import own_parts
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
    """

    event: events.RunRolledBack
    before: LedgerRecord

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
        if self.event.how != "subtracted" or t != self.event.until - 1:
            return None
        none = events.ClientsAssigned({}, "clients")  # no client was there
        return self._choices.get(self.event.round_index, none)


def newest_rewind(session: Session) -> Rewind | None:
    """Return the newest roll back; None: there was none."""
    record = session.record()
    for at in reversed(range(len(record.facts))):
        event = record.facts[at][1]
        if isinstance(event, events.RunRolledBack):
            return Rewind(event, record.until(at))
    return None


def carried_over(session: Session, leavers: Sequence[Handle], answers: Sequence[Option]) -> str:
    """Say which parts of a user's own would carry a leaver over a replay; "": none is seen to.

    The first round that is to be played again is played twice: a part that keeps something
    outside of the run's state makes other models the second time. A part that does not show
    itself so is named in the proof.
    """
    replaying = [each for each in answers if each.first_replayed_round is not None]
    own = own_parts(session.run.config)
    if not own or not replaying or replay_kind(replaying) not in ("anew", "recorded"):
        return ""
    first = min(each.first_replayed_round or 0 for each in replaying)
    stay = tuple(c for c in session.run.population.clients if c.handle not in leavers)
    run = session.run.with_clients(stay)
    if run.client_backend is not None or session.secrets.source != "seeded":
        return ""
    streams = session.secrets.at_round(first).at("round", first)

    def played() -> tuple[str, Sequence[events.Event]]:
        state = run.algorithm.init(run.streams)
        if first:
            kept = kept_state(session.folder, session.ledger, after=first - 1)
            state = kept.without(leavers)
        result = run.algorithm.round(state, run.clients(stay, first), streams)
        return model_hash(result.state.clusters), result.events

    if played() == played():
        return ""
    parts = ", ".join(f"{setting} = {name!r}" for setting, name in sorted(own.items()))
    return (
        f"A round that is played twice must come out the same, but round {round_number(first)} "
        f"did not: a part that is not covey's keeps something outside of the run's state, which "
        f"a replay would carry over ({parts}). Keep it in that state, or ask with --answer stop."
    )


def is_subtracting(session: Session) -> bool:
    """Say whether sums were subtracted for an answer that is not signed yet."""
    served = (Served.of(each) for each in session.ledger.requests() if each.served)
    return any(each.subtracts for each in served)


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
    rewind = newest_rewind(session)
    if rewind is None or not is_subtracting(session):
        return None
    folder, first = session.folder, rewind.event.round_index
    later = (p for p in checkpoint_paths(folder.checkpoints) if round_of(p) >= first)
    if not all(state_problem(path, session.ledger) for path in later):
        return None  # it was played, and kept
    present = {client.handle for client in session.run.population.clients}
    state = _kept(session, first)
    return replace(state.without(state.assignment.keys() - present), round_index=first)


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
    return run.algorithm.solve(state, replace(chosen, clusters=stay), there)


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
