"""Sums without those who leave: the state from which a run's last round is solved again.

A subtraction plays one round again, the last one, from the state after it less the sums of
who leaves. That state is on the disk before the answer is recorded: whatever kills the
process then, the round begins with the same bits. Should it be damaged, the state that it
came of does as well, as the sums can be made anew from the records of those who stay.
"""

import logging
from collections.abc import Collection, Iterator
from dataclasses import replace

from covey.algorithms.state import ServerState
from covey.base import events
from covey.base.errors import RunError
from covey.base.names import Handle
from covey.runs.folder import checkpoint_path, checkpoint_paths, round_of
from covey.runs.session import Session
from covey.runs.states import load_state, state_bytes, state_problem
from covey.settings.clients import ClientReports
from covey.settings.run import BuiltRun

_NAME = "subtracted"
"""What the ledger calls the state's file."""

log = logging.getLogger(__name__)


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
    present = tuple(client for client in known if client is not None)
    unknown = set(leavers) - {client.handle for client in present}
    less = run.algorithm.without(state.without(unknown), run.clients(present))
    unsolved, head = _unsolved(run, less), session.record.head_of(state.round_index - 1) or ""
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


def unsolved_state(session: Session, round_index: int) -> ServerState:
    """Return the state from which a round is solved again.

    Raises:
        RunError: it is lost, and so is the one that it came of.
    """
    present = {client.handle for client in session.run.population.clients}
    state = _written(session, round_index)
    return replace(state.without(state.assignment.keys() - present), round_index=round_index)


def is_solved_again(session: Session, round_index: int) -> bool:
    """Say whether a round of which states were deleted was solved, and its state is there."""
    paths = checkpoint_paths(session.folder.checkpoints)
    later = (path for path in paths if round_of(path) >= round_index)
    return any(not state_problem(path, session.ledger) for path in later)


def _written(session: Session, round_index: int) -> ServerState:
    folder, ledger = session.folder, session.ledger
    path = checkpoint_path(folder.subtracted, round_index)
    if not ledger.files.problem(_NAME, path):
        return load_state(path)[0]
    log.warning("sums are made anew: no whole state in %s", folder.subtracted)
    for place in (folder.superseded, folder.checkpoints):
        path = checkpoint_path(place, round_index)
        if not state_problem(path, ledger):
            return _unsolved(session.run, load_state(path)[0])
    raise RunError(
        f"The state after round {round_index} must be whole in {folder.subtracted} or "
        f"{folder.superseded}, found neither: restore one from a copy, and resume."
    )


def _unsolved(run: BuiltRun, state: ServerState) -> ServerState:
    return replace(state, clusters=run.algorithm.init(run.streams).clusters)
