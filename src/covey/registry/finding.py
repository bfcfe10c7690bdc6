"""Finding runs: below folders, and by the URLs of their ledgers."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from covey.errors import RunError
from covey.registry.entry import RunEntry
from covey.registry.reading import (
    VERIFIED_BYTES,
    Reading,
    entry_of_folder,
    entry_of_ledger,
    is_run,
)
from covey.registry.walk import DEPTH, runs_below

__all__ = ["found_runs", "named_run"]

URLS = ("postgresql:", "postgresql+psycopg:", "env:", "file:")


def found_runs(
    roots: Sequence[str | Path],
    *,
    at: datetime | None = None,
    depth: int = DEPTH,
    whole: bool = False,
    verify_bytes: int = VERIFIED_BYTES,
) -> tuple[RunEntry, ...]:
    """Return every run below these folders, and those whose ledgers' URLs are given.

    Ledgers are opened to be read, none of a run's own code is imported, and nothing is
    written. A run that is damaged, or that cannot be looked at, is an entry that says so.
    Databases that runs' settings name are connected to.

    Args:
        roots: folders, and URLs of ledgers: `postgresql://...?run=NAME`, or `env:NAME` and
            `file:PATH` of what holds one.
        at: what ages are counted to; None: now.
        depth: folders below each root that are looked into; links never are.
        whole: verify the chain of every ledger, and not only of those that are short.
        verify_bytes: how long such a one is at most; 0 for a list that is asked for often.

    Raises:
        RunError: a root is not there.
    """
    reading = Reading(at or datetime.now(UTC), whole, verify_bytes)
    found: dict[str, RunEntry] = {}
    for root in roots:
        for entry in _below(root, depth, reading):
            found.setdefault(entry.place, entry)
    return tuple(found.values())


def named_run(
    name: str,
    roots: Sequence[str | Path],
    *,
    at: datetime | None = None,
) -> RunEntry:
    """Return the one run of this name or place, its ledger verified as a whole.

    Raises:
        RunError: there is none, or several have the name.
    """
    reading = Reading(at or datetime.now(UTC), whole=True)
    if Path(name).is_dir() and is_run(Path(name)):
        return entry_of_folder(Path(name), Path(name).resolve().name, reading)
    found, there = [], []
    for root in roots:
        for entry in found_runs([root], at=at):
            there.append(entry.place)
            if name in (entry.name, entry.place):
                found.append((root, entry))
    if len(found) != 1:
        many = f"{len(found)} have it" if found else "none has it"
        raise RunError(
            f"A run is named by its folder, or as `covey runs list` names it, found "
            f"{name!r}, and {many}. There are: {', '.join(there[:8]) or 'none'}. Give "
            f"the folder."
        )
    root, entry = found[0]
    if entry.folder is None:
        return entry_of_ledger(str(root), reading)
    return entry_of_folder(entry.folder, entry.name, reading)


def _below(root: str | Path, depth: int, reading: Reading) -> Iterator[RunEntry]:
    if _is_url(root):
        yield entry_of_ledger(str(root), reading)
        return
    top = Path(root)
    if not top.is_dir():
        raise RunError(
            f"Runs are looked for below folders, or by the URL of a ledger, found "
            f"{str(root)!r}, which is no folder. Give folders that are there."
        )
    for found in runs_below(top.resolve(), depth):
        path = top / found.path.relative_to(top.resolve())
        name = path.relative_to(top).as_posix() if path != top else path.resolve().name
        if found.problem:
            yield RunEntry(
                place=str(path),
                folder=path,
                name=name,
                state="unreadable",
                reason=found.problem,
            )
        elif is_run(path):
            yield entry_of_folder(path, name, reading)


def _is_url(root: str | Path) -> bool:
    return isinstance(root, str) and root.startswith(URLS)
