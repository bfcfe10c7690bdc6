"""A run's record, checked, as its folder holds it; nothing here loads what learns."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from covey.base.errors import RunError
from covey.base.history import History
from covey.base.names import ClientName, Handle
from covey.ledger.store import Ledger
from covey.runtime.anchors import check_anchors
from covey.runtime.folder import RunFolder, check_settings


@contextmanager
def checked_ledger(folder: RunFolder) -> Generator[Ledger]:
    """Open a run's ledger to be read.

    Raises:
        LedgerError: there is none, it cannot be read, or its history is not the one that
            receipts were signed for.
        RunError: the settings are not those that began the run.
    """
    with Ledger.read(folder.ledger) as ledger:
        check_anchors(folder, ledger)
        history = folder.reader.read(ledger).history
        if not folder.is_checked(ledger):
            check_settings(folder.config(), history, folder)
        yield ledger


def unknown_client(folder: RunFolder, name: ClientName, more: str = "") -> RunError:
    """Return what is raised where a run knows no client of a name."""
    return RunError(
        f"Clients are asked for by the names that {folder.path} knows, but it knows no client "
        f"{name!r}: it never did, or not any more. Check the spelling{more}."
    )


@dataclass(frozen=True, slots=True, eq=False)
class RunRecord:
    """A run as its events tell it.

    Attributes:
        names: the handle of every client that has not left.
    """

    history: History
    ledger_head: str
    names: Mapping[ClientName, Handle]


def read_run_record(folder: RunFolder) -> RunRecord:
    """Read a run's ledger, without its data.

    Raises:
        CoveyError: as of `checked_ledger`.
    """
    with checked_ledger(folder) as ledger:
        names = {name: handle for handle, name in ledger.names().items()}
        record = folder.reader.read(ledger)
        return RunRecord(record.history, record.head, names)
