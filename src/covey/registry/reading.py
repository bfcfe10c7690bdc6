"""One run's line, read from its folder or its ledger: nothing is written or raised."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from covey.components.foreign_code import no_foreign_code
from covey.dp import guarantee_status
from covey.errors import CoveyError, LedgerError, LedgerUnavailable
from covey.events import RunEndedEarly, RunStarted
from covey.history import History
from covey.ledger import Ledger
from covey.ledger.location import resolved
from covey.ledger.overview import Overview
from covey.registry.entry import RunEntry
from covey.registry.walk import size_of
from covey.report import early_end_told
from covey.runs.story import read_run_record
from covey.runtime import RunFolder
from covey.runtime.ledger_record import RecordReader
from covey.runtime.recorded_events import event_of

__all__ = [
    "VERIFIED_BYTES",
    "Reading",
    "entry_of_folder",
    "entry_of_ledger",
    "is_run",
    "reader_url",
]

VERIFIED_EVENTS = 20_000
"""Events of a ledger that is verified as a whole for the list, at most."""

VERIFIED_BYTES = 64 * 2**20
"""Bytes of the same, in a file."""

CONNECT_SECONDS = "5"
"""How long a database may take to answer: one that is away must not stop the list."""

OPEN = ("pending", "serving")


@dataclass(frozen=True, slots=True)
class Reading:
    """How runs are read.

    Attributes:
        at: what an event's age is counted to.
        whole: verify every chain, however long.
        verify_bytes: of a ledger's file whose whole chain is verified, at most.
    """

    at: datetime
    whole: bool = False
    verify_bytes: int = VERIFIED_BYTES


def is_run(path: Path) -> bool:
    """Say whether a folder is a run's, and not one that has such a file by chance."""
    folder = RunFolder(path)
    if folder.imports.exists():
        return True
    try:
        if folder.ledger_path.exists():
            return folder.config_path.exists() or Ledger.exists(folder.ledger_path)
        return bool(folder.config().ledger.url)
    except LedgerError:
        return True  # damaged, and maybe a run's
    except (CoveyError, ValueError, OSError):
        return False


def entry_of_folder(path: Path, name: str, reading: Reading) -> RunEntry:
    """Return a run's line, whatever state its folder is in."""
    folder = RunFolder(path)
    entry = RunEntry(
        place=str(path),
        folder=path,
        name=name,
        state="waiting",
        size_bytes=size_of(path),
        undelivered_answers=len(list(folder.unacknowledged.glob("*.sealed"))),
        proofs=len(list(folder.proofs.glob("*.json"))),
    )
    try:
        config = folder.config()
    except (CoveyError, ValueError, OSError) as error:
        return _with_ledger(_faulty(entry, error), folder.ledger_path, reading, None)
    entry = replace(entry, method=config.method.name, rounds_planned=config.rounds)
    return _with_ledger(entry, folder.ledger, reading, folder)


def entry_of_ledger(url: str, reading: Reading) -> RunEntry:
    """Return the line of a run whose ledger lies in a database."""
    shown = _shown(url)
    entry = RunEntry(place=shown, folder=None, name=shown, state="waiting")
    return _with_ledger(entry, url, reading, None)


def reader_url(location: str | Path) -> str | Path:
    """Return where to read a ledger, waiting for its database for some seconds only.

    Raises:
        LedgerUnavailable: what the location stands for cannot be found out.
    """
    place = resolved(location)
    if isinstance(place, Path) or not place.startswith("postgresql"):
        return place
    try:
        url = make_url(place)
    except (ArgumentError, ValueError):
        return place  # whoever opens it says what is wrong with it
    if "connect_timeout" not in url.query:
        url = url.update_query_dict({"connect_timeout": CONNECT_SECONDS})
    return url.render_as_string(hide_password=False)


def _with_ledger(
    entry: RunEntry, location: str | Path, reading: Reading, folder: RunFolder | None
) -> RunEntry:
    """Return the line with what the ledger tells; of a damaged one, as far as it goes."""
    try:
        place = reader_url(location)
        if not Ledger.exists(place):
            return _unrecorded(entry)
        with Ledger.read(place) as ledger:
            entry = _overviewed(entry, ledger, reading)
            return _verified(entry, ledger, reading, folder)
    except Exception as error:  # a damaged file can hold anything
        return _faulty(entry, error)


def _unrecorded(entry: RunEntry) -> RunEntry:
    if entry.state != "waiting":
        return entry
    return replace(
        entry,
        reason="nothing is recorded yet",
        rounds_played=0,
        open_requests=_queued(entry),
        guarantee_reason="nothing is recorded yet",
    )


def _overviewed(entry: RunEntry, ledger: Ledger, reading: Reading) -> RunEntry:
    found = ledger.overview()
    began = _began(found)
    planned = entry.rounds_planned or (began.rounds if began else None)
    ended = _ended_early(found)
    rounds = ended.rounds if ended else planned
    played = 0 if found.last_round is None else found.last_round + 1
    waiting = [each for each in ledger.requests() if each.state in OPEN]
    entry = replace(
        entry,
        method=entry.method or (began.method if began else ""),
        rounds_planned=planned,
        rounds_played=played if rounds is None else min(played, rounds),
        last_event=found.last_kind,
        last_event_at=found.written_at,
        age_seconds=_age(found.written_at, reading.at),
        clients=found.clients,
        ledger_head=found.head[:12],
        open_requests=len(waiting) + _queued(entry),
    )
    if not ledger.is_being_written():
        # the run's end is recorded in one more round than it has
        return _at_rest(entry, ended, is_over=rounds is not None and played > rounds)
    return replace(entry, state="running") if entry.state == "waiting" else entry


def _at_rest(
    entry: RunEntry, ended: RunEndedEarly | None, *, is_over: bool
) -> RunEntry:
    if entry.state != "waiting":  # a fault that was found before the ledger was read
        return entry
    if is_over:
        return replace(entry, state="finished", reason=early_end_told(ended))
    return replace(entry, reason=f"stopped after {entry.rounds_played} rounds")


def _verified(
    entry: RunEntry, ledger: Ledger, reading: Reading, folder: RunFolder | None
) -> RunEntry:
    """Verify the whole chain, if it is not too long for that, and tell what it promises."""
    if not reading.whole and _is_long(ledger, entry, reading.verify_bytes):
        reason = "not looked at: the ledger is long. `covey runs show` reads it whole"
        return replace(entry, guarantee_reason=reason)
    history = (
        read_run_record(folder).history
        if folder is not None
        else RecordReader().read(ledger).history
    )
    return replace(entry, is_verified=True, **_guarantees(history))


def _is_long(ledger: Ledger, entry: RunEntry, most: int) -> bool:
    place = None if entry.folder is None else RunFolder(entry.folder).ledger_path
    if place is not None and place.is_file():
        return place.stat().st_size > most
    return not most or ledger.overview().events > VERIFIED_EVENTS


def _guarantees(history: History) -> Mapping[str, Any]:
    try:
        with no_foreign_code():
            status = guarantee_status(history)
    except CoveyError as error:
        return {"guarantee_reason": f"not known: {_line(error)}"}
    sentences = tuple(
        f"epsilon {each.epsilon:.3g} for a {each.unit} at delta {each.delta:g}, against "
        f"whoever {each.adversary}"
        for each in status.guarantees
        if each.epsilon is not None
    )
    return {"guarantees": sentences, "guarantee_reason": status.reason}


def _began(found: Overview) -> RunStarted | None:
    kind = RunStarted.__name__
    first = next((each for each in found.first_round if each.kind == kind), None)
    event = None if first is None else event_of(first)
    return event if isinstance(event, RunStarted) else None


def _ended_early(found: Overview) -> RunEndedEarly | None:
    events = (event_of(each) for each in found.ended)
    return next((each for each in events if isinstance(each, RunEndedEarly)), None)


def _queued(entry: RunEntry) -> int:
    """Count requests that wait in the folder until who plays the run takes them up."""
    if entry.folder is None:
        return 0
    return len(list(RunFolder(entry.folder).request_queue.glob("*.json")))


def _age(written_at: str, at: datetime) -> float | None:
    try:
        written = datetime.fromisoformat(written_at)
    except ValueError:
        return None
    if written.tzinfo is None:
        written = written.replace(tzinfo=UTC)
    return (at - written).total_seconds()


def _faulty(entry: RunEntry, error: Exception) -> RunEntry:
    if entry.state == "damaged":
        return entry
    away = isinstance(error, LedgerUnavailable | OSError)
    return replace(
        entry,
        state="unreadable" if away else "damaged",
        reason=_line(error),
        guarantee_reason="not known: the run cannot be read",
    )


def _line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _shown(url: str) -> str:
    try:
        return make_url(str(resolved(url))).render_as_string(hide_password=True)
    except (ArgumentError, ValueError, LedgerUnavailable):
        return url.partition("?")[0] if "@" not in url else "a ledger's URL"
