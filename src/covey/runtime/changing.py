"""Clients that join a run, and clients whose records change, where models are solved.

First the records, and the state without the older ones, are written; then the ledger says
in one transaction what changed; then the last round is solved again. Whatever kills the
process before that transaction, nothing has happened; after it, resuming the run ends it.
"""

import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from covey.algorithms import ServerState
from covey.build import BuiltRun, sums_of
from covey.errors import RunError
from covey.events import (
    ClientsJoined,
    Event,
    RecordsChanged,
    RunRolledBack,
    kind_and_body,
)
from covey.ledger import Record
from covey.runtime.copies import copies_of, model_bytes
from covey.runtime.folder import RunFolder
from covey.runtime.inputs import input_hashes, note_inputs
from covey.runtime.ledger_record import LedgerRecord
from covey.runtime.loop import Observer, continue_run
from covey.runtime.new_records import (
    Change,
    NewRecords,
    changing_client,
    joining_client,
)
from covey.runtime.record_changes import owed_change
from covey.runtime.record_files import keep_records
from covey.runtime.recorded import unplayed_reason
from covey.runtime.session import Session, open_session
from covey.runtime.state_checks import checked_state
from covey.runtime.subtracting import keep_subtracted
from covey.types import ClientName, Handle
from covey.unlearning import latest_models, latest_sums

__all__ = ["ChangedRecords", "change_records", "join_run"]


@dataclass(frozen=True, slots=True)
class ChangedRecords:
    """What came of new records.

    Attributes:
        cluster: whose sums they are in.
        examples: how many the client has now, beside those that it holds out.
        sums_before: SHA-256 of that cluster's sums; None: the ledger tells none.
        sums_after: the same, now.
        model_before: hash of all models.
        model_hash: the same, now.
        seconds: from the call to the solved models.
        exported: models on record that were solved with what was there before.
    """

    client: ClientName
    handle: Handle
    cluster: int
    examples: int
    sums_before: str | None
    sums_after: str | None
    model_before: str | None
    model_hash: str | None
    seconds: float
    exported: tuple[str, ...] = ()


def join_run(
    run: BuiltRun,
    folder: RunFolder,
    brought: NewRecords,
    observe: Observer = lambda _: None,
) -> ChangedRecords:
    """Let a client join with records of its own, and solve the models with them.

    It chooses among models that never met it; the others stay where they are.

    Raises:
        CoveyError: nobody can join, the name was there before, or the data do not fit.
    """
    return _changed(run, folder, brought, joining_client, observe)


def change_records(
    run: BuiltRun,
    folder: RunFolder,
    brought: NewRecords,
    observe: Observer = lambda _: None,
) -> ChangedRecords:
    """Replace a client's records, or add to them, and solve the models with them.

    Raises:
        CoveyError: the run's models are not solved from sums, the client is not known,
            or the data do not fit.
    """
    return _changed(run, folder, brought, changing_client, observe)


_Prepare = Callable[[Session, ServerState, NewRecords], Change]


def _changed(
    run: BuiltRun,
    folder: RunFolder,
    brought: NewRecords,
    prepare: _Prepare,
    observe: Observer,
) -> ChangedRecords:
    began = time.monotonic()
    with open_session(run, folder) as session:
        state = _state(session)
        change, before = prepare(session, state, brought), session.record()
        _record(session, state, change)
    with open_session(run, folder) as session:
        owed = owed_change(session)
        until = owed[0].until if owed else 0
        continue_run(session, until, observe)
        exported, after = _superseded(session), session.record()
    return ChangedRecords(
        client=change.client.name,
        handle=change.client.handle,
        cluster=change.cluster,
        examples=len(change.client.train),
        sums_before=_sums(before, change.cluster),
        sums_after=_sums(after, change.cluster),
        model_before=latest_models(before.events),
        model_hash=latest_models(after.events),
        seconds=time.monotonic() - began,
        exported=exported,
    )


def _state(session: Session) -> ServerState:
    """Return the state after the last round, if records can change now.

    Raises:
        RunError: they cannot.
    """
    folder = session.folder
    for refusal in _refusals(session.run, folder):
        raise RunError(refusal)
    reason = "a change is not finished" if owed_change(session) else ""
    if reason := reason or unplayed_reason(folder):
        raise RunError(
            f"Before a client's records change, what has begun in {folder.path} must be "
            f"finished, but {reason}. Finish it: covey resume {folder.path}"
        )
    state = checked_state(folder, session.ledger)
    if state is None:
        raise RunError(
            f"Clients join, and change their records, between two rounds, but none was "
            f"played in {folder.path}. Play it first: covey resume {folder.path}"
        )
    return state


def _refusals(run: BuiltRun, folder: RunFolder) -> Iterator[str]:
    """Yield why records never change in this run."""
    name = run.config.method.name
    anew = "Start a new run with the records as they are now"
    sums = sums_of(run.config)
    if sums == "none" or run.strategy.subtraction is None:
        yield (
            f"Clients join, and change their records, where models are solved from sums "
            f"over clients, as with method.name = 'solved'; found method.name = {name!r}, "
            f"which trains its models. {anew}. Who is to be out of this one can leave it: "
            f"covey forget {folder.path}"
        )
    if run.client_backend is not None:
        yield (
            f"Clients on machines of their own, as those of {folder.path}, bring their "
            f"records by starting their node. One whose records changed leaves, and comes "
            f"back under another name: covey forget {folder.path}"
        )
    if run.config.privacy.secure_sums:
        yield (
            f"Under privacy.secure_sums nobody joins, or changes its records, by itself: "
            f"the sums after it, less those before, would be that client's. {anew}, or set "
            f"secure_sums = false in it."
        )
    if sums == "noisy":
        yield (
            f"Clients join, and change their records, where sums have no noise, but those "
            f"of {folder.path} are released under it, once: other sums would be a second "
            f"release. {anew}."
        )


def _record(session: Session, state: ServerState, change: Change) -> None:
    """Write what the change needs, and then record it in one transaction."""
    run, ledger, client = session.run, session.ledger, change.client
    now = run.with_clients(change.among(run.population.clients))
    keep_records(session.folder, ledger, session.record().events, client)
    keep_subtracted(session, state, () if change.joins else (client.handle,))
    note_inputs(input_hashes(now), ledger)
    t, accepts = state.round_index, client.preference if change.joins else None
    facts: list[Event] = [
        *change.choice,
        *((ClientsJoined((client.handle,)),) if change.joins else ()),
        RecordsChanged(
            handle=client.handle,
            cluster=change.cluster,
            examples=len(client.train),
            data_hash=now.data_hash or "",
            risk_threshold=accepts and accepts.risk_threshold,
            risk_weight=accepts and accepts.risk_weight,
        ),
        RunRolledBack(t - 1, t, "changed"),
    ]
    ledger.append_between(
        [Record(None, *kind_and_body(fact)) for fact in facts],
        {client.handle: client.name} if change.joins else None,
    )


def _sums(record: LedgerRecord, cluster: int) -> str | None:
    found = latest_sums(record.events)
    return None if found is None else found.sums[cluster]


def _superseded(session: Session) -> tuple[str, ...]:
    """Return the exported models on record that are none of today's."""
    state = checked_state(session.folder, session.ledger)
    models = state.clusters if state else ()
    current = {hashlib.sha256(model_bytes(each)).hexdigest() for each in models}
    return tuple(
        each.path
        for each in copies_of(session.folder)
        if each.what == "model" and not each.deleted and each.sha256 not in current
    )
