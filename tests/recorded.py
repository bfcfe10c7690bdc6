"""What a run's folder holds: its events, and its files."""

from pathlib import Path
from typing import TypeVar

from covey.base.events import Event
from covey.ledger.store import Ledger
from covey.runs.folder import RunFolder
from covey.runs.ledger_record import LedgerReader

E = TypeVar("E", bound=Event)


def events_of(folder: Path) -> list[tuple[int | None, Event]]:
    """Return the events in force with their rounds; None: between two rounds."""
    with Ledger.read(RunFolder(folder).ledger) as ledger:
        return LedgerReader().read(ledger).events


def facts(folder: Path, kind: type[E]) -> list[E]:
    return [event for _, event in events_of(folder) if isinstance(event, kind)]


def requests_of(folder: Path) -> list[tuple[str, str]]:
    """Return every request to leave: its state, and what was answered or wanted."""
    with Ledger.read(RunFolder(folder).ledger) as ledger:
        return [(request.state, request.answer or request.wanted) for request in ledger.requests()]


def contents(folder: Path) -> dict[str, bytes]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def assert_nowhere(folder: Path, *words: str) -> None:
    """Fail where a file of a folder, or an event of a run, holds one of these words."""
    for name, content in contents(folder).items():
        assert not [word for word in words if word.encode() in content], name
    if (folder / "ledger.sqlite").is_file():
        with Ledger.read(folder / "ledger.sqlite") as ledger:  # whose texts are compressed
            events = str(ledger.replay())
        assert not [word for word in words if word in events]
