"""Making room for a new run where an old one is."""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from covey.errors import RunError
from covey.registry import RunEntry, found_runs, prune, retention
from covey.requests.needed import needed_runs
from covey.runtime import RunFolder

__all__ = ["delete_run"]


def delete_run(path: Path) -> None:
    """Delete the run in this folder, whole; nothing, if there is none.

    Raises:
        RunError: somebody still needs it, or it cannot go with its folder.
        LedgerError: the register of requests beside it cannot be read.
    """
    if not RunFolder(path).config_path.is_file():
        return
    entries = found_runs([path])
    needed = _needed(path, entries)
    (found,) = (
        each
        for each in retention(entries, timedelta.min, "whole", needed=needed)
        if each.entry.folder and each.entry.folder.resolve() == path.resolve()
    )
    kept = found.kept
    if not kept and not RunFolder(path).ledger_path.is_file():
        kept = "its ledger is not in the folder, and would stay"
    if kept or not prune([found]):
        raise RunError(
            f"{path} was to be overwritten and must stay: {kept or 'it is being written'}. "
            f"Give another folder, or settle that first."
        )


def _needed(path: Path, entries: Sequence[RunEntry]) -> dict[str, str]:
    """Return why open cases need a run: of the registers of the folders that it lies in."""
    needed: dict[str, str] = {}
    for root in path.resolve().parents:
        needed |= needed_runs(root / "requests", [path], entries)
    return needed
