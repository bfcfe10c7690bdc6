"""The list of runs: where they lie, and one line for each."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from covey.base.errors import CoveyError, LedgerError, LedgerUnavailable, RunError
from covey.base.events import RunEndedEarly, RunStarted
from covey.base.files import leaving_link
from covey.base.history import History, of_kinds
from covey.base.own_code import no_foreign_code
from covey.dp.status import guarantee_status
from covey.ledger.backends import describe
from covey.ledger.chain import event_of
from covey.ledger.store import Ledger
from covey.report.summary import describe_early_end
from covey.runs.folder import TRACKING, RunFolder
from covey.runs.ledger_record import LedgerReader
from covey.runs.reading import read_record

RunState = Literal["running", "waiting", "finished", "damaged", "unreadable"]
"""running: a process holds the right to write it; waiting: not at its end, and no process
plays it; damaged: what is there is not what covey wrote; unreadable: it cannot be looked
at from here."""


DEPTH = 6
"""Folders below a root that are looked into."""

MOST_FOLDERS = 100_000
"""Folders that are looked at below one root."""

PRUNED = ".covey-pruned-"
"""How the names of folders begin whose deletion began."""

MARKS = ("config.toml", "ledger.sqlite")
"""A run has one of these at least, or had it."""

VERIFIED_EVENTS = 20_000
"""Events of a ledger that is verified as a whole for the list, at most."""

VERIFIED_BYTES = 64 * 2**20
"""Bytes of the same, in a file."""

URLS = ("postgresql:", "postgresql+psycopg:", "env:", "file:")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEntry:
    """A run as it was found. What is not known is None, or "" for texts.

    Attributes:
        place: its folder; of a ledger in a database without a folder, the URL, without a
            password.
        folder: None where only a ledger's URL is known.
        name: its folder below the root that it was found under, or the URL's `run`.
        reason: what `state` rests on, where that is not plain: the fault, for example.
        rounds_played: those that count; rounds that were taken back do not.
        last_event: the kind of the newest event.
        last_event_at: when it was recorded, ISO 8601.
        age_seconds: how long ago that was.
        clients: those that have not left.
        size_bytes: of all files in the folder, but for runs inside it.
        ledger_head: the newest hash, cut to 12 digits; what it seals is verified only if
            `is_verified` says so.
        open_requests: to leave, that wait for an answer or are being answered.
        undelivered_answers: whose salt no one has acknowledged.
        proofs: how many there are in the folder.
        guarantees: of differential privacy, that hold; each a sentence.
        guarantee_reason: why none holds, or why that is not known.
        is_verified: whether the ledger's whole chain was read.
    """

    place: str
    folder: Path | None
    name: str
    state: RunState
    reason: str = ""
    method: str = ""
    rounds_played: int | None = None
    rounds_planned: int | None = None
    last_event: str = ""
    last_event_at: str = ""
    age_seconds: float | None = None
    clients: int | None = None
    size_bytes: int = 0
    ledger_head: str = ""
    open_requests: int | None = None
    undelivered_answers: int = 0
    proofs: int = 0
    guarantees: tuple[str, ...] = ()
    guarantee_reason: str = ""
    is_verified: bool = False


def _folders_below(root: Path, depth: int) -> Iterator[tuple[Path, str]]:
    """Yield folders that hold a run's settings or its ledger, in the order of their paths.

    Beside each stands why it was not looked at; "": it was. Where too much lies below the
    root, the last one says so.
    """
    failed: list[OSError] = []
    for looked_at, (path, inner, files) in enumerate(os.walk(root, onerror=failed.append)):
        folder = Path(path)
        yield from _not_listed(failed)
        if looked_at == MOST_FOLDERS:
            yield (
                root,
                f"more than {MOST_FOLDERS:,} folders lie below it, and the rest were not "
                f"looked at: give folders nearer to the runs",
            )
            return
        marks = [name for name in sorted((*inner, *files)) if name in MARKS]
        if linked := [mark for mark in marks if (folder / mark).is_symlink()]:
            yield folder, f"{linked[0]} is a link, and links are not followed"
        elif any((folder / mark).is_file() for mark in marks):
            yield folder, ""
        below = len(folder.parts) - len(root.parts) < depth
        inner[:] = sorted(name for name in inner if below and not name.startswith(PRUNED))
    yield from _not_listed(failed)


def _not_listed(failed: list[OSError]) -> Iterator[tuple[Path, str]]:
    while failed:
        error = failed.pop(0)
        yield Path(str(error.filename)), f"the folder cannot be listed: {error.strerror}"


def size_of(folder: Path) -> int:
    """Return the bytes of all files in a run's folder, but for runs inside it."""
    total = 0
    for path, inner, files in os.walk(folder):
        here = Path(path)
        inner[:] = [e for e in inner if not any((here / e / mark).exists() for mark in MARKS)]
        for file in files:
            with suppress(OSError):  # deleted since, by who plays the run
                total += (here / file).lstat().st_size
    return total


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
    has_settings, has_ledger = folder.config_path.exists(), folder.ledger_path.exists()
    try:
        begun = has_settings if has_ledger else folder.has_all_settings
        return begun or (has_ledger and Ledger.exists(folder.ledger_path))
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
        folder.check_links()
    except RunError as error:
        return replace(_faulty(entry, error), state="unreadable")
    try:
        settings = folder.settings()
    except (CoveyError, ValueError, OSError) as error:
        return _with_ledger(_faulty(entry, error), folder.ledger_path, reading, None)
    entry = replace(entry, method=settings["method"]["name"], rounds_planned=settings["rounds"])
    try:
        place = folder.ledger
    except LedgerUnavailable as error:  # this user did not allow it
        return _faulty(entry, error)
    return _with_ledger(entry, place, reading, folder)


def entry_of_ledger(url: str, reading: Reading) -> RunEntry:
    """Return the line of a run whose ledger lies in a database."""
    shown = describe(url)
    entry = RunEntry(place=shown, folder=None, name=shown, state="waiting")
    return _with_ledger(entry, url, reading, None)


def _with_ledger(
    entry: RunEntry, location: str | Path, reading: Reading, folder: RunFolder | None
) -> RunEntry:
    """Return the line with what the ledger shows; of a damaged one, as far as it goes."""
    try:
        if not Ledger.exists(location):
            reason = "nothing is recorded yet"
            begun = {"rounds_played": 0, "open_requests": _queued(entry)}
            fresh = replace(entry, reason=reason, guarantee_reason=reason, **begun)
            return fresh if entry.state == "waiting" else entry
        with Ledger.read(location) as ledger:
            entry = _overviewed(entry, ledger, reading)
            return _verified(entry, ledger, reading, folder)
    except Exception as error:  # a damaged file can hold anything
        return _faulty(entry, error)


def _overviewed(entry: RunEntry, ledger: Ledger, reading: Reading) -> RunEntry:
    overview = ledger.overview()
    kinds = RunStarted.__name__, RunEndedEarly.__name__
    seen = [event_of(row.record()) for row in ledger.look(of_kinds=kinds)]
    began = next(of_kinds(seen, RunStarted), None)
    planned = entry.rounds_planned or (began.rounds if began else None)
    ended = next(of_kinds(seen, RunEndedEarly), None)
    rounds = ended.rounds if ended else planned
    played = 0 if overview.last_round is None else overview.last_round + 1
    waiting = [request for request in ledger.requests() if request.is_open]
    entry = replace(
        entry,
        method=entry.method or (began.method if began else ""),
        rounds_planned=planned,
        rounds_played=played if rounds is None else min(played, rounds),
        last_event=overview.last_kind,
        last_event_at=overview.written_at or "",
        age_seconds=seconds_since(overview.written_at or "", reading.at),
        clients=overview.clients,
        ledger_head=overview.head[:12],
        open_requests=len(waiting) + _queued(entry),
    )
    if entry.state != "waiting":  # a fault that was found before the ledger was read
        return entry
    if ledger.is_being_written():
        return replace(entry, state="running")
    if rounds is not None and played > rounds:  # the run's end is one more round than it has
        return replace(entry, state="finished", reason=describe_early_end(ended))
    return replace(entry, reason=f"stopped after {entry.rounds_played} rounds")


def _verified(
    entry: RunEntry, ledger: Ledger, reading: Reading, folder: RunFolder | None
) -> RunEntry:
    """Verify the whole chain, if it is not too long for that, and say what it promises."""
    if not reading.whole and _is_long(ledger, entry, reading.verify_bytes):
        reason = "not looked at: the ledger is long. `covey runs show` reads it whole"
        return replace(entry, guarantee_reason=reason)
    record = read_record(folder)[0] if folder else LedgerReader().read(ledger)
    return replace(entry, is_verified=True, **_guarantees(record.history))


def _is_long(ledger: Ledger, entry: RunEntry, most: int) -> bool:
    if entry.folder and (place := RunFolder(entry.folder).ledger_path).is_file():
        return place.stat().st_size > most
    return not most or ledger.overview().events > VERIFIED_EVENTS


def _guarantees(history: History) -> Mapping[str, Any]:
    try:
        with no_foreign_code():
            status = guarantee_status(history)
    except CoveyError as error:
        return {"guarantee_reason": f"not known: {_line(error)}"}
    sentences = tuple(e.sentence for e in status.guarantees if e.epsilon is not None)
    return {"guarantees": sentences, "guarantee_reason": status.guarantee_reason}


def _queued(entry: RunEntry) -> int:
    """Count requests that wait in the folder until who plays the run takes them up."""
    if entry.folder is None:
        return 0
    return len(list(RunFolder(entry.folder).request_queue.glob("*.json")))


def seconds_since(written_at: str, at: datetime) -> float | None:
    """Return how long before `at` a time of a ledger was; None: it is none."""
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


def find_runs(
    roots: Sequence[str | Path], *, at: datetime | None = None, depth: int = DEPTH
) -> tuple[RunEntry, ...]:
    """Return every run below these folders, and those whose ledgers' URLs are passed.

    Ledgers are opened to be read, none of a run's own code is imported, and nothing is
    written. A run that is damaged, or that cannot be looked at, is an entry that says so.
    Databases that runs' settings name are connected to if this user allowed that.

    Args:
        roots: folders, and URLs of ledgers: `postgresql://...?run=NAME`, or `env:NAME` and
            `file:PATH` of what holds one.
        at: what ages are counted to; None: now.
        depth: folders below each root that are looked into; links never are.

    Raises:
        RunError: a root is not there.
    """
    reading = Reading(at or datetime.now(UTC))
    entries: dict[str, RunEntry] = {}
    for root in roots:
        for entry in _below(root, depth, reading):
            entries.setdefault(entry.place, entry)
    return tuple(entries.values())


def named_run(name: str, roots: Sequence[str | Path]) -> RunEntry:
    """Return the one run of this name or place, its ledger verified as a whole.

    Raises:
        RunError: there is none, or several have the name.
    """
    reading = Reading(datetime.now(UTC), whole=True)
    if Path(name).is_dir() and is_run(Path(name)):
        return entry_of_folder(Path(name), Path(name).resolve().name, reading)
    below = [(root, entry) for root in roots for entry in find_runs([root])]
    places = [entry.place for _, entry in below]
    same = [(root, entry) for root, entry in below if name in (entry.name, entry.place)]
    if len(same) != 1:
        many = f"{len(same)} have it" if same else "none has it"
        raise RunError(
            f"A run must be named by its folder or as `covey runs list` does, found {name!r}, and "
            f"{many}: give the folder of one of {', '.join(places[:8]) or 'none'}."
        )
    root, entry = same[0]
    if entry.folder is None:
        return entry_of_ledger(str(root), reading)
    return entry_of_folder(entry.folder, entry.name, reading)


def _below(root: str | Path, depth: int, reading: Reading) -> Iterator[RunEntry]:
    if isinstance(root, str) and root.startswith(URLS):
        yield entry_of_ledger(str(root), reading)
        return
    top = Path(root)
    if not top.is_dir():
        raise RunError(
            f"Runs must be in a folder or a ledger's URL, found {str(root)!r}: give one."
        )
    for path, name, problem in run_folders(top, depth):
        if problem:
            yield RunEntry(
                place=str(path), folder=path, name=name, state="unreadable", reason=problem
            )
        else:
            yield entry_of_folder(path, name, reading)


def run_folders(top: Path, depth: int = DEPTH) -> Iterator[tuple[Path, str, str]]:
    """Yield each run below a folder: where, its name, and why it was not looked at, if so."""
    for folder, problem in _folders_below(top.resolve(), depth):
        path = top / folder.relative_to(top.resolve())
        if not problem and (link := leaving_link(path, TRACKING)):
            problem = f"{link.relative_to(path)} is a link that leads out of it"
        if problem or is_run(path):
            name = path.relative_to(top).as_posix() if path != top else path.resolve().name
            yield path, name, problem
