"""A client's records that change: what is owed to it until the models are solved again.

It is a subtraction, and the client is counted anew with its new records. The state without
its old ones is on the disk before the ledger says what they are now, and from there the
last round is solved again, with the choices that are recorded and with the client's own.
"""

from covey.atomic_io import delete_whole
from covey.checkpoints import (
    checkpoint_paths,
    delete_before,
    delete_from,
    round_of,
    set_aside_from,
)
from covey.events import RecordsChanged, RunRolledBack
from covey.ledger import REWIND, Record
from covey.runtime.record_files import drop_old_records
from covey.runtime.session import Session
from covey.runtime.settling import RENDERED
from covey.runtime.state_checks import state_problem
from covey.types import Handle

__all__ = ["change_of", "owed_change", "settle_change", "tend_change"]


def change_of(records: list[Record]) -> tuple[RunRolledBack, Handle, int] | None:
    """Return the newest replay, whose records changed, and its cluster.

    None where the newest replay, if there is one, was for something else.
    """
    rewinds = [i for i, record in enumerate(records) if record.kind == REWIND]
    if not rewinds:
        return None
    rewind = RunRolledBack(**records[rewinds[-1]].body)
    changed = records[rewinds[-1] - 1]
    if rewind.how != "changed" or changed.kind != RecordsChanged.__name__:
        return None
    return rewind, changed.body["handle"], changed.body["cluster"]


def owed_change(session: Session) -> tuple[RunRolledBack, Handle, int] | None:
    """Return a change whose models were not solved yet, or not kept."""
    change = change_of(session.record().records)
    if change is None:
        return None
    first, last = change[0].round_index, session.ledger.last_round()
    if last is None or last < first:
        return change
    paths = checkpoint_paths(session.folder.checkpoints)
    later = (path for path in paths if round_of(path) >= first)
    whole = any(not state_problem(path, session.ledger) for path in later)
    return None if whole else change


def tend_change(session: Session) -> bool:
    """Set aside or delete what a change made obsolete; any number of times.

    Returns:
        Whether the models are owed to somebody whose records changed.
    """
    change, folder = owed_change(session), session.folder
    if change is None:
        _settle(session)
        return False
    first, last = change[0].round_index, session.ledger.last_round()
    if last is None or last < first:
        set_aside_from(folder.checkpoints, first, folder.superseded)
        delete_from(folder.checkpoints, first)
        session.secrets.restart_at(first)
        for name in RENDERED:  # shows the run as it was
            delete_whole(folder.path / name)
    return True


def settle_change(session: Session) -> None:
    """Delete what a change made obsolete, once it is owed no more; any number of times."""
    if owed_change(session) is None:
        _settle(session)


def _settle(session: Session) -> None:
    record, folder = session.record(), session.folder
    if change := change_of(record.records):
        for path in (folder.superseded, folder.subtracted):
            delete_whole(path)
        delete_before(folder.checkpoints, change[0].round_index)
    drop_old_records(folder, session.ledger, record.events)
