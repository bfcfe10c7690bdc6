"""All runs that pages are shown of, each read on whenever a page asks for it."""

import hashlib
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock, RLock
from typing import Any

from covey import CoveyError, History
from covey.api.listing import Reading, RunEntry, entry_of_folder, run_folders
from covey.base.files import read_text
from covey.ledger.store import Ledger
from covey.report.queries import Reported
from covey.runs.folder import RunFolder
from covey.runs.ledger_record import LedgerReader, LedgerRecord
from covey.settings.load import without_passwords

TICK_NANOSECONDS = 100_000_000
"""Within a tick of its file system's clock, a file can change again unseen."""

REDONE_AFTER_SECONDS = 15.0
"""Figures and pictures take a moment, so a run that goes on has others no sooner than this."""


RESCAN_AFTER = 3.0
"""Seconds for which a list of folders counts."""

RELIST_AFTER = 15.0
"""Seconds for which a run's line counts, if its ledger stays as it is."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is known of a run at one moment: all that was in its ledger, verified.

    Attributes:
        times: when entries were written, by the position of their last event.
        problem: why no more is known; "": nothing is in the way.
    """

    record: LedgerRecord = field(default_factory=LedgerRecord)
    times: dict[int, str] = field(default_factory=dict[int, str])
    problem: str = "nothing is recorded yet"

    @property
    def history(self) -> History:
        """What the rounds came to."""
        return self.record.history

    @property
    def written_at(self) -> str | None:
        """When the last event was written."""
        return next(reversed(self.times.values()), None)


class FollowedRun:
    """One run that a browser looks at; its pages are made one after another."""

    def __init__(self, key: str, name: str, path: Path) -> None:
        self.key, self.name, self.folder = key, name, RunFolder(path)
        self._reader, self._lock = LedgerReader(), RLock()
        self._stamp: tuple[int, int] | None = None
        self._now = self._shown = Snapshot()
        self._shown_at = float("-inf")
        self._results: dict[str, tuple[Snapshot, Any]] = {}

    def look(self) -> Snapshot:
        """Return what the ledger holds now; what was added to it is read and verified first."""
        with self._lock:
            stamp = self.stamp()
            if stamp is None or stamp != self._stamp:
                # a later change shows in the stamp of a file that a tick has passed since
                is_still = stamp is not None and time.time_ns() - stamp[0] > TICK_NANOSECONDS
                self._stamp = stamp if is_still else None
                self._now = self._read()
            return self._now

    def shown(self) -> Snapshot:
        """Return what figures and pictures show: what is known, or was a few seconds ago."""
        with self._lock:
            snapshot, now = self.look(), time.monotonic()
            began, ended = self._shown.history.started, snapshot.history.finished
            if not began or ended or now - self._shown_at > REDONE_AFTER_SECONDS:
                self._shown, self._shown_at = snapshot, now
            return self._shown

    def made(self, what: str, work: Callable[[Snapshot], Any], of: Snapshot) -> Any:  # noqa: ANN401
        """Return what `work` makes of a snapshot, made once."""
        with self._lock:
            known = self._results.get(what)
            if known is None or known[0] is not of:
                known = self._results[what] = of, work(of)
            return known[1]

    def reported(self, snapshot: Snapshot) -> Reported:
        """Return the run as the report takes it."""
        settings = without_passwords(read_text(self.folder.config_path))
        head = snapshot.record.head
        return Reported(self.name, snapshot.history, settings, ledger_head=head)

    def stamp(self) -> tuple[int, int] | None:
        """Return what is other whenever the ledger is, and cheap; None: nothing is."""
        try:
            file = self.folder.ledger_path.stat()
        except OSError:
            return None
        return file.st_mtime_ns, file.st_size

    def _read(self) -> Snapshot:
        try:
            if not Ledger.exists(self.folder.ledger):
                return Snapshot()
            with Ledger.read(self.folder.ledger) as ledger:
                record, times = self._reader.read(ledger), ledger.times()
        except (CoveyError, ValueError, OSError) as error:
            return replace(self._now, problem=str(error))
        is_known = record is self._now.record and not self._now.problem
        return self._now if is_known else Snapshot(record, times, problem="")


class WatchedRuns:
    """Finds runs, and keeps what was read of each."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self.roots = tuple(roots)
        self._runs: dict[str, FollowedRun] = {}
        self._lines: dict[str, tuple[object, float, RunEntry]] = {}
        self._scanned_at = float("-inf")
        self._lock = Lock()

    def all(self) -> list[FollowedRun]:
        """Return the runs that are there now."""
        with self._lock:
            if time.monotonic() - self._scanned_at > RESCAN_AFTER:
                self._runs = {run.key: run for run in self._scan()}
                self._scanned_at = time.monotonic()
            return list(self._runs.values())

    def get(self, key: str) -> FollowedRun | None:
        """Return the run of a key, if it is there."""
        self.all()
        return self._runs.get(key)

    def line(self, run: FollowedRun) -> RunEntry:
        """Return a run's line in the list; its chain is not verified for that."""
        now, stamp = time.monotonic(), run.stamp()
        listed = self._lines.get(run.key)
        if listed is None or listed[0] != stamp or now > listed[1]:
            reading = Reading(datetime.now(UTC), verify_bytes=0)
            entry = entry_of_folder(run.folder.path, run.name, reading)
            listed = self._lines[run.key] = stamp, now + RELIST_AFTER, entry
        return listed[2]

    def _scan(self) -> Iterator[FollowedRun]:
        for root in self.roots:
            for path, name, problem in run_folders(root.resolve()):
                if not problem:
                    key = key_of(name, path)
                    yield self._runs.get(key) or FollowedRun(key, name, path)


def key_of(name: str, path: Path) -> str:
    """Return what stands in a page's address for a run: its name, and a hash of where."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40]
    mark = hashlib.sha256(str(path).encode("utf-8", "surrogateescape")).hexdigest()
    return f"{plain}-{mark[:10]}".lstrip("-")
