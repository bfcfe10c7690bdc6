"""Making room for a new run where an old one is."""

from datetime import timedelta
from pathlib import Path

from covey.errors import RunError
from covey.registry.finding import found_runs
from covey.registry.pruning import prune, retention
from covey.runtime import RunFolder

__all__ = ["delete_run"]


def delete_run(path: Path) -> None:
    """Delete the run in this folder, whole; nothing, if there is none.

    Raises:
        RunError: somebody still needs it, or it cannot go with its folder.
    """
    if not RunFolder(path).config_path.is_file():
        return
    entries = found_runs([path])
    (found,) = (
        each
        for each in retention(entries, timedelta.min, "whole")
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
