"""Sums without those who leave: written before they are answered, taken up after.

A subtraction plays one round again, the last one, from the state after it less the sums of
who leaves. That state is on the disk before the answer is recorded: whatever kills the
process then, the round begins with the same bits. Should it be damaged, the state that it
came of does as well, as the sums can be made anew from the records of those who stay.
"""

import logging
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from covey.algorithms import Cohort, RoundResult, ServerState, Subtraction
from covey.bounded_io import file_hash
from covey.build import BuiltRun
from covey.checkpoints import checkpoint_of, checkpoint_paths, round_of
from covey.errors import RunError
from covey.events import ClientsAssigned, Event, RunRolledBack
from covey.ledger import REWIND
from covey.runtime.record_changes import owed_change
from covey.runtime.remote_reports import told_of_others
from covey.runtime.session import Session
from covey.runtime.state_checks import state_problem
from covey.runtime.state_io import load_state, save_state
from covey.types import Handle

__all__ = ["is_subtracting", "keep_subtracted", "solved_again", "subtracted_state"]

log = logging.getLogger(__name__)

NAME = "subtracted"
"""What the ledger calls the state's file."""


def is_subtracting(session: Session) -> bool:
    """Say whether sums were subtracted for an answer that is not signed yet."""
    served = (each.served for each in session.ledger.requests())
    return any(
        each is not None and each.facts.replayed == "subtracted" for each in served
    )


def keep_subtracted(
    session: Session, state: ServerState, leavers: Collection[Handle]
) -> tuple[Event, ...]:
    """Write the state from which the last round is played again without these clients.

    None of its models has seen them: all are those that the run begins with. Remote
    clients are asked for the sums that are subtracted, or those who stay for theirs.

    Returns:
        What is to be told of those who stay and were asked.
    """
    run, ledger = session.run, session.ledger
    known = (session.client(handle) for handle in leavers)
    there = tuple(client for client in known if client is not None)
    unknown = set(leavers) - {client.handle for client in there}
    less = _subtraction(run).without(state.without(unknown), run.clients(there))
    digests: list[str] = []

    def announce(digest: str) -> None:
        ledger.files.note(NAME, digest)
        digests.append(digest)

    head = ledger.head_of(state.round_index - 1) or ""
    save_state(session.folder.subtracted, _unsolved(run, less), head, announce)
    ledger.files.settle(NAME, digests[-1])
    backend = run.client_backend
    return () if backend is None else told_of_others(backend.reports(), leavers)


def subtracted_state(session: Session) -> ServerState | None:
    """Return the state before a round that is owed to an answer; None: none is.

    Raises:
        RunError: it is lost, and so is the one that it came of.
    """
    change = owed_change(session)
    if not is_subtracting(session) and change is None:
        return None
    found = (each for each in session.record().records if each.kind == REWIND)
    rewind = RunRolledBack(**[*found][-1].body)
    folder, first = session.folder, rewind.round_index
    later = (p for p in checkpoint_paths(folder.checkpoints) if round_of(p) >= first)
    if not all(state_problem(path, session.ledger) for path in later):
        return None  # it was played, and kept
    present = {client.handle for client in session.run.population.clients}
    state = _kept(session, first)
    changed = {change[1]} if change else set[Handle]()
    state = state.without((state.assignment.keys() - present) | changed)
    return replace(state, round_index=first)


def solved_again(
    run: BuiltRun, state: ServerState, present: Cohort, chosen: ClientsAssigned
) -> RoundResult:
    """Solve the models of a round from sums, with the choices that were recorded."""
    counted = chosen.clusters.keys()
    if run.client_backend is not None:  # who was missing when sums were counted anew
        counted &= state.assignment.keys()
    cohort = tuple(client for client in present if client.handle in counted)
    stay = {client.handle: chosen.clusters[client.handle] for client in cohort}
    there = run.clients(cohort, state.round_index)
    streams = run.streams.at("round", state.round_index)
    return _subtraction(run).solve(
        state, replace(chosen, clusters=stay), there, streams
    )


def _kept(session: Session, round_index: int) -> ServerState:
    folder, ledger = session.folder, session.ledger
    for path in checkpoint_paths(folder.subtracted):
        if round_of(path) == round_index and _digest(path) in ledger.files.of(NAME):
            return load_state(path)[0]
    log.warning("sums are made anew: no whole state in %s", folder.subtracted)
    path = checkpoint_of(folder.superseded, round_index)
    if path is None or state_problem(path, ledger):
        raise RunError(
            f"Sums are subtracted from a whole state, but neither {folder.subtracted} nor "
            f"{folder.superseded} holds the one after round {round_index}. Restore one of "
            f"them from a copy, and resume."
        )
    return _unsolved(session.run, load_state(path)[0])


def _unsolved(run: BuiltRun, state: ServerState) -> ServerState:
    return replace(state, clusters=run.strategy.init(run.streams).clusters)


def _subtraction(run: BuiltRun) -> Subtraction:
    found = run.strategy.subtraction
    if found is None:
        raise RunError(
            f"An algorithm that `subtracts` must have a strategy that says how, but that "
            f"of method.name = {run.config.method.name!r} has no `subtraction`. Give it "
            f"one, or ask with --answer retrain."
        )
    return found


def _digest(path: Path) -> str:
    return file_hash(path)
