"""A run's record, checked, as its folder holds it; nothing here loads what learns."""

from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager

from covey.base.errors import LedgerError, RunError
from covey.base.names import ClientName, Handle, do_you_mean
from covey.ledger.store import Ledger
from covey.runs.folder import RunFolder, check_settings
from covey.runs.ledger_record import LedgerRecord
from covey.runs.receipts import check_anchors


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


def describe_reached(folder: RunFolder) -> str:
    """Say how many rounds of a stopped run are recorded: "after round 3"."""
    last = None
    try:
        if Ledger.exists(folder.ledger):
            with Ledger.read(folder.ledger) as ledger:
                last = ledger.last_round()
    except LedgerError:
        return f"in {folder.path}"
    if last is None:
        return "before the first round was complete"
    return f"after round {min(last + 1, folder.config().rounds)}"


def unknown_client(
    folder: RunFolder, name: ClientName, known: Iterable[ClientName], more: str = ""
) -> RunError:
    """Return what is raised where a run has none of these clients of a name."""
    return RunError(
        f"A client must be one that {folder.path} records, found {name!r}, which never was there "
        f"or has left: check the spelling{more}.{do_you_mean(name, known)}"
    )


def read_record(folder: RunFolder) -> tuple[LedgerRecord, Mapping[ClientName, Handle]]:
    """Read a run's ledger, without its data, and the handles of who has not left.

    Raises:
        CoveyError: as of `checked_ledger`.
    """
    with checked_ledger(folder) as ledger:
        names = {name: handle for handle, name in ledger.names().items()}
        return folder.reader.read(ledger), names
