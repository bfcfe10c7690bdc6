"""What a run's ledger says when it is read."""

from collections.abc import Mapping
from dataclasses import dataclass

from covey.history import History
from covey.ledger import Ledger
from covey.runtime import RunFolder
from covey.runtime.anchors import check_anchors
from covey.runtime.session import check_settings
from covey.types import ClientName, Handle

__all__ = ["RunRecord", "read_run_record"]


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
        LedgerError: there is none, it cannot be read, or its history is not the one that
            receipts were signed for.
        RunError: the settings are not those that began the run.
    """
    with Ledger.read(folder.ledger) as ledger:
        check_anchors(folder, ledger)
        names = {name: handle for handle, name in ledger.names().items()}
        record = folder.reader.read(ledger)
        check_settings(folder.config(), record.history, folder)
        return RunRecord(record.history, record.head, names)
