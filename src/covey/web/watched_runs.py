"""All runs that pages are shown of, each under a key that no path can be made of."""

import hashlib
import re
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock

from covey.registry import RunEntry
from covey.registry.reading import Reading, entry_of_folder, is_run
from covey.registry.walk import runs_below
from covey.web.followed_run import FollowedRun

__all__ = ["WatchedRuns"]

FOUND_AGAIN_AFTER = 3.0
"""Seconds for which a list of folders counts."""

LISTED_AGAIN_AFTER = 15.0
"""Seconds for which a run's line counts, if its ledger stays as it is."""


class WatchedRuns:
    """Finds runs, and keeps what was read of each."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self.roots = tuple(roots)
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="covey-reader")
        self._runs: dict[str, FollowedRun] = {}
        self._lines: dict[str, tuple[object, float, RunEntry]] = {}
        self._found_at = float("-inf")
        self._lock = Lock()

    def all(self) -> list[FollowedRun]:
        """Return the runs that are there now."""
        with self._lock:
            if time.monotonic() - self._found_at > FOUND_AGAIN_AFTER:
                self._runs = {run.key: run for run in self._found()}
                self._found_at = time.monotonic()
            return list(self._runs.values())

    def get(self, key: str) -> FollowedRun | None:
        """Return the run of a key, if it is there."""
        return next((each for each in self.all() if each.key == key), None)

    def line(self, run: FollowedRun) -> RunEntry:
        """Return a run's line in the list; its chain is not verified for that."""
        now, stamp = datetime.now(UTC), run.stamp()
        kept = self._lines.get(run.key)
        if kept and kept[0] == stamp and time.monotonic() < kept[1]:
            return _aged(kept[2], now)
        entry = entry_of_folder(run.folder.path, run.name, Reading(now, verify_bytes=0))
        until = time.monotonic() + LISTED_AGAIN_AFTER
        self._lines[run.key] = stamp, until, entry
        return entry

    def close(self) -> None:
        """Read no more."""
        self._reader.shutdown(wait=False, cancel_futures=True)

    def _found(self) -> Iterator[FollowedRun]:
        for root in self.roots:
            top = root.resolve()
            for path in (found.path for found in runs_below(top) if not found.problem):
                if not is_run(path):
                    continue
                name = path.relative_to(top).as_posix() if path != top else top.name
                key = key_of(name, path)
                known = self._runs.get(key)
                yield known or FollowedRun(key, name, path, self._reader)


def key_of(name: str, path: Path) -> str:
    """Return what stands in a page's address for a run: its name, and a hash of where."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40]
    mark = hashlib.sha256(str(path).encode("utf-8", "surrogateescape")).hexdigest()
    return f"{plain}-{mark[:10]}".lstrip("-")


def _aged(entry: RunEntry, now: datetime) -> RunEntry:
    if entry.age_seconds is None:
        return entry
    written = datetime.fromisoformat(entry.last_event_at)
    return replace(entry, age_seconds=(now - written).total_seconds())
