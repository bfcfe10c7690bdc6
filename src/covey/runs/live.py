"""One live line in a notebook, or at a terminal, while a program plays a run."""

import sys
from importlib import import_module
from typing import Any

from covey.history import History
from covey.report import round_line
from covey.runtime import Observer

__all__ = ["in_notebook", "live_line"]


def in_notebook() -> bool:
    """Say whether a notebook's kernel runs this program."""
    shell: Any = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and getattr(shell, "kernel", None) is not None


def live_line(title: str) -> Observer:
    """Return what shows the newest round of a run in one line, and changes that line."""
    write = _notebook_line() if in_notebook() else _terminal_line()

    def observe(history: History) -> None:
        write(f"{title}: {_told(history)}", history.finished is not None)

    return observe


def _told(history: History) -> str:
    if not history.rounds:
        return "round 1 is under way"
    return f"{'finished, ' if history.finished else ''}{round_line(history)}"


def _notebook_line() -> Any:  # noqa: ANN401 - a function of a line, and whether it is the last
    display: Any = import_module("IPython.display").display
    shown: list[Any] = []

    def write(line: str, _: bool) -> None:  # noqa: FBT001 - as the other one takes it
        told = {"text/plain": line}
        if not shown:
            shown.append(display(told, raw=True, display_id=True))
        else:
            shown[0].update(told, raw=True)

    return write


def _terminal_line() -> Any:  # noqa: ANN401 - as above
    longest = 0

    def write(line: str, last: bool) -> None:  # noqa: FBT001 - as the other one takes it
        nonlocal longest
        longest = max(longest, len(line))
        sys.stderr.write("\r" + line.ljust(longest) + ("\n" if last else ""))
        sys.stderr.flush()

    return write
