"""Finished sets on disk, so that a stopped bench goes on where it was."""

import json
from dataclasses import asdict
from pathlib import Path

from pydantic import TypeAdapter

from covey.atomic_io import replace_whole
from covey_papers.bench.measure import Measured
from covey_papers.bench.scenarios import BenchSet

__all__ = ["found", "put"]


def found(folder: Path, bench: BenchSet) -> Measured | None:
    """Return what was measured on this very set; None if it was not."""
    path = _path(folder, bench)
    if not path.is_file():
        return None
    kept = json.loads(path.read_text(encoding="utf-8"))
    if kept["bench"] != _plain(bench):
        return None
    return TypeAdapter(Measured).validate_python(kept["measured"])


def put(folder: Path, bench: BenchSet, measured: Measured) -> None:
    """Write down what was measured, all of it or nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    both = {"bench": _plain(bench), "measured": asdict(measured)}
    replace_whole(_path(folder, bench), json.dumps(both, indent=1).encode())


def _plain(bench: BenchSet) -> object:
    """Return the set as JSON gives it back."""
    return json.loads(json.dumps(asdict(bench)))


def _path(folder: Path, bench: BenchSet) -> Path:
    words = "".join(c if c.isalnum() else " " for c in bench.name.lower()).split()
    return folder / f"{'-'.join(words)}.json"
