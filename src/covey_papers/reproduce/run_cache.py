"""Runs on disk under the hash of what they are, so that tables share them."""

import hashlib
import json
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from covey.atomic_io import replace_whole
from covey.config import Config, brings_clients, heeded, reads_files, that_matter
from covey.runtime import Observer, is_finished, open_or_create, run_rounds
from covey_papers.reproduce.provenance import commit

__all__ = ["Shelf", "Shown", "digest", "note", "sources"]

Shown = Callable[[str], AbstractContextManager[Observer]]
"""Shows a run as it goes on, under a title."""


@dataclass(frozen=True, slots=True)
class Shelf:
    """A folder of runs.

    Attributes:
        shown: how a run that has to be played is shown meanwhile.
    """

    folder: Path
    shown: Shown

    def run(self, config: Config, title: str) -> Path:
        """Return a finished run of these settings: played now, unless it is there.

        One that was stopped is carried on to the result that it would have had.
        """
        path = self.folder / digest(config)
        if is_finished(path):
            return path
        run, folder = open_or_create(path, config)
        began = time.monotonic()
        with self.shown(title) as observe:
            run_rounds(run, folder, observe)
        seconds = round(time.monotonic() - began, 1)
        note(path / "played.json", {"commit": commit(), "seconds": seconds})
        return path


def digest(config: Config) -> str:
    """Return a short hash of the settings that can change the result."""
    matters = heeded(that_matter(config), config)
    if brings_clients(config) and reads_files(config):
        matters["data.dir"] = config.data.dir
    if config.unlearning.request_probability > 0:
        matters["merge.deniability_threshold"] = config.merge.deniability_threshold
    whole = json.dumps(matters, sort_keys=True)
    return hashlib.sha256(whole.encode()).hexdigest()[:16]


def note(path: Path, what: dict[str, Any]) -> None:
    """Write a small file, all of it or nothing."""
    replace_whole(path, json.dumps(what, indent=1).encode())


def sources(paths: Iterable[Path]) -> dict[str, Any]:
    """Return which code played these runs, and how many seconds that took."""
    noted = [
        json.loads(place.read_text(encoding="utf-8"))
        for place in (path / "played.json" for path in sorted(set(paths)))
        if place.is_file()
    ]
    return {
        "commits": tuple(sorted({each["commit"] for each in noted})),
        "seconds": sum((each["seconds"] for each in noted), 0.0),
    }
