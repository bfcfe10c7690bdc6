"""Runs that an open case needs: nothing of them is deleted."""

from collections.abc import Sequence
from pathlib import Path

from covey.registry import RunEntry
from covey.requests.holdings import path_of, search_runs
from covey.requests.register import read_register

__all__ = ["needed_runs"]


def needed_runs(
    folder: Path, roots: Sequence[str | Path], entries: Sequence[RunEntry]
) -> dict[str, str]:
    """Return why runs are needed, by their place; folder: the register's, if it is there.

    Raises:
        LedgerError: the register cannot be read: then nobody can say.
    """
    if not (folder / "register.sqlite").is_file():
        return {}
    needed: dict[str, str] = {}
    with read_register(folder) as register:
        texts = register.texts()
        alive = [each for each in register.cases().values() if not each.is_closed]
    names = {each.number: texts[each.person] for each in alive if each.person in texts}
    found = search_runs(roots, list(names.values()))
    for case in alive:
        runs = {texts[each] for each in (*case.known, *case.asked) if each in texts}
        for path in (*runs, *found.runs_of(names.get(case.number, ""))):
            needed.setdefault(path, f"case {case.number} of the register is open")
    return {e.place: needed[path_of(e)] for e in entries if path_of(e) in needed}
