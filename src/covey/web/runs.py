"""All runs that pages are shown of, each read in the background."""

import hashlib
import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Condition, Lock
from typing import Any

from covey.base.errors import CoveyError
from covey.base.files import read_text
from covey.base.history import History
from covey.base.own_code import no_foreign_code
from covey.desk.runs import Reading, RunEntry, entry_of_folder, run_folders
from covey.ledger.store import Ledger
from covey.report.queries import Reported
from covey.runtime.folder import RunFolder
from covey.runtime.ledger_record import LedgerReader, RecentEvents, glance
from covey.settings.load import without_passwords

READERS = 4
"""Runs that are read at the same time."""

PATIENCE_SECONDS = 0.5
"""How long a page waits for what was added to be read."""

SHORT_SECONDS = 0.1
"""How long a page waits for what is being worked out."""

TICK_NANOSECONDS = 100_000_000
"""Within a tick of its file system's clock, a file can change again unseen."""

REDRAWN_AFTER_SECONDS = 15.0
"""Pictures take a moment to draw, so a run that goes on has others no sooner than this."""

LATEST = 24
"""How many of the newest events a page shows."""

LONG_BYTES = 4_000_000
"""From this size on, a page does not wait for a ledger that was never read."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is known of a run at one moment; equal are two that say the same.

    Attributes:
        is_whole: everything was read and verified; if not, `history` lacks who is in
            which cluster, and what follows from that.
        position: of the last event that was read and verified.
        end: of the last event that there is.
        times: when entries were written, by the position of their last event.
        problem: why no more is known; "": nothing is in the way.
    """

    history: History = field(default_factory=History, compare=False)
    is_whole: bool = False
    position: int = 0
    end: int = 0
    head: str = ""
    written_at: str | None = field(default=None, compare=False)
    times: dict[int, str] = field(default_factory=dict[int, str], compare=False)
    latest: tuple[RecentEvents, ...] = field(default=(), compare=False)
    problem: str = ""

    @property
    def mark(self) -> str:
        """What is in the address of a picture of it."""
        return f"{self.head[:16]}-{'whole' if self.is_whole else 'glance'}"


class FollowedRun:
    """One run that a browser looks at.

    Attributes:
        version: counts up whenever there is something new to show.
    """

    def __init__(self, key: str, name: str, path: Path, reader: Executor) -> None:
        self.key, self.name, self.folder = key, name, RunFolder(path)
        self.version = 0
        self._reader, self._growing = reader, LedgerReader(places=True)
        self._snapshot: Snapshot | None = None
        self._changed = Condition()
        self._is_reading = False
        self._stamp: tuple[int, int] | None = None
        self._pictured: Snapshot | None = None
        self._pictured_at = float("-inf")
        self._results: dict[str, tuple[Snapshot, Any]] = {}
        self._later: dict[str, tuple[Snapshot, Future[None]]] = {}

    def look(self) -> Snapshot:
        """Return what is known now; what is not yet is being read from here on."""
        stamp = self.stamp()
        if self._snapshot is None and stamp is not None and stamp[1] > LONG_BYTES:
            self._publish_glance()
        self.check()
        with self._changed:
            is_first = self._snapshot is not None and not self._snapshot.is_whole
            patience = 0.0 if is_first else PATIENCE_SECONDS
            self._changed.wait_for(lambda: not self._is_reading, patience)
            if self._snapshot is not None:
                return self._snapshot
        self._publish_glance()
        return self._snapshot or Snapshot()

    def check(self) -> None:
        """Begin to read on, if the ledger is not what it was."""
        stamp = self.stamp()
        with self._changed:
            if self._is_reading or (stamp is not None and stamp == self._stamp):
                return
            # a later change shows in the stamp of a file that a tick has passed since
            is_still = stamp is not None and time.time_ns() - stamp[0] > TICK_NANOSECONDS
            self._stamp, self._is_reading = stamp if is_still else None, True
        self._reader.submit(self._read)

    def made(self, what: str, work: Callable[[Snapshot], Any], of: Snapshot | None = None) -> Any:  # noqa: ANN401
        """Return what `work` makes of what is known, or of `of`, made once for each head."""
        snapshot = of or self.look()
        known = self._results.get(what)
        if known is None or known[0] is not snapshot:
            known = self._results[what] = snapshot, work(snapshot)
        return known[1]

    def made_later(self, what: str, work: Callable[[Snapshot], Any]) -> Any:  # noqa: ANN401
        """Return what `work` makes of what is known, if it does so at once.

        Else what it made of an earlier head, or None, while it goes on.
        """
        snapshot = self.look()
        if not snapshot.is_whole:
            return None
        with self._changed:
            of, future = self._later.get(what, (None, None))
            if future is None or (of is not snapshot and future.done()):
                future = self._reader.submit(self._make, what, work, snapshot)
                self._later[what] = snapshot, future
        if wait([future], SHORT_SECONDS).not_done:
            future.add_done_callback(self._count_up)
        known = self._results.get(what)
        return None if known is None else known[1]

    def pictured(self) -> Snapshot:
        """Return what pictures show: what is known now, or was known a few seconds ago."""
        snapshot, now = self._snapshot or Snapshot(), time.monotonic()
        if (
            self._pictured is None
            or snapshot.is_whole != self._pictured.is_whole
            or snapshot.history.finished is not None
            or now - self._pictured_at > REDRAWN_AFTER_SECONDS
        ):
            self._pictured, self._pictured_at = snapshot, now
        return self._pictured

    def reported(self, snapshot: Snapshot) -> Reported:
        """Return the run as the report takes it."""
        settings = without_passwords(read_text(self.folder.config_path))
        return Reported(self.name, snapshot.history, settings, ledger_head=snapshot.head)

    def _make(self, what: str, work: Callable[[Snapshot], Any], snapshot: Snapshot) -> None:
        with no_foreign_code():
            self._results[what] = snapshot, work(snapshot)

    def _count_up(self, _: object) -> None:
        with self._changed:
            self.version += 1

    def stamp(self) -> tuple[int, int] | None:
        """Return what is other whenever the ledger is, and cheap; None: nothing is."""
        try:
            file = self.folder.ledger_path.stat()
        except OSError:
            return None
        return file.st_mtime_ns, file.st_size

    def _publish(self, snapshot: Snapshot) -> None:
        with self._changed:
            if self._snapshot != snapshot:
                self._snapshot = snapshot
                self.version += 1
            self._changed.notify_all()

    def _publish_glance(self) -> None:
        """Publish a glance, unless the reader, meanwhile, has published what it read."""
        glanced = self._glanced()
        with self._changed:
            if self._snapshot is None:
                self._publish(glanced)

    def _read(self) -> None:
        """Read to the end of the ledger, and publish what is new."""
        growing = self._growing
        try:
            if not Ledger.exists(self.folder.ledger):
                self._publish(Snapshot(problem="nothing is recorded yet"))
                return
            with no_foreign_code(), Ledger.read(self.folder.ledger) as ledger:
                for position in growing.pieces(ledger):
                    if self._snapshot is not None and not self._snapshot.is_whole:
                        self._publish(replace(self._snapshot, position=position))
                record, times = growing.read(ledger), ledger.times()
            whole = Snapshot(
                history=record.history,
                is_whole=True,
                position=len(record.hashes),
                end=len(record.hashes),
                head=record.head,
                written_at=next(reversed(times.values()), None),
                times=times,
                latest=tuple(record.latest(LATEST)),
            )
            self._publish(whole)
        except (CoveyError, ValueError, OSError) as error:
            self._publish(replace(self._snapshot or Snapshot(), problem=str(error)))
        finally:
            with self._changed:
                self._is_reading = False
                self._changed.notify_all()

    def _glanced(self) -> Snapshot:
        try:
            if not Ledger.exists(self.folder.ledger):
                return Snapshot(problem="nothing is recorded yet")
            with Ledger.read(self.folder.ledger) as ledger, no_foreign_code():
                history = replace(glance(ledger), all_events=())
                seen = ledger.overview()
        except (CoveyError, ValueError, OSError) as error:
            return Snapshot(problem=str(error))
        return Snapshot(
            history=history, end=seen.events, head=seen.head, written_at=seen.written_at
        )


RESCAN_AFTER = 3.0
"""Seconds for which a list of folders counts."""

RELIST_AFTER = 15.0
"""Seconds for which a run's line counts, if its ledger stays as it is."""


class WatchedRuns:
    """Finds runs, and keeps what was read of each."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self.roots = tuple(roots)
        self._reader = ThreadPoolExecutor(READERS, thread_name_prefix="covey-reader")
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
        kept = self._lines.get(run.key)
        if kept is None or kept[0] != stamp or now > kept[1]:
            reading = Reading(datetime.now(UTC), verify_bytes=0)
            entry = entry_of_folder(run.folder.path, run.name, reading)
            kept = self._lines[run.key] = stamp, now + RELIST_AFTER, entry
        return kept[2]

    def _scan(self) -> Iterator[FollowedRun]:
        for root in self.roots:
            for path, name, problem in run_folders(root.resolve()):
                if not problem:
                    key = key_of(name, path)
                    yield self._runs.get(key) or FollowedRun(key, name, path, self._reader)


def key_of(name: str, path: Path) -> str:
    """Return what stands in a page's address for a run: its name, and a hash of where."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40]
    mark = hashlib.sha256(str(path).encode("utf-8", "surrogateescape")).hexdigest()
    return f"{plain}-{mark[:10]}".lstrip("-")
