"""The terminal of a command: standard error with progress and logs, and what stops it.

Standard output belongs to answers and `--json`. Logs hold steps, rounds and handles, never
data, keys or names; the logger is "covey", so a program that calls covey can take them too.
Ctrl-C and SIGTERM end a command with a sentence: every recorded round stays.
"""

from __future__ import annotations

import logging
import shlex
import signal
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from rich.console import Console

from covey.base.errors import ConfigError

if TYPE_CHECKING:
    from rich.progress import Progress

    from covey.base.history import History
    from covey.runs.session import Observer

FORM = "%(asctime)s %(levelname)s %(name)s: %(message)s"
OURS = "covey command line"
"""The name of the handlers that are added here, and taken away again."""

covey = logging.getLogger("covey")

_literal = partial(Console, stderr=True, markup=False, emoji=False, highlight=False)

console = _literal()
"""For progress; `--quiet` silences it."""

errors = _literal()
"""For what must be read: errors, and what is shown only once."""

log = logging.getLogger("covey.run")


def be_quiet(wanted: bool) -> bool:
    """Show no progress."""
    console.quiet |= wanted
    return wanted


def be_verbose(wanted: bool) -> bool:
    """Log to standard error."""
    if wanted and not any(type(h) is logging.StreamHandler for h in covey.handlers):
        _add(logging.StreamHandler(sys.stderr))
    return wanted


def log_into(path: Path | None) -> Path | None:
    """Log to the end of a file.

    Raises:
        ConfigError: it cannot be written.
    """
    if path is not None:
        try:
            _add(logging.FileHandler(path, encoding="utf-8"))
        except OSError as error:
            raise ConfigError(
                f"--log-file must be a file that can be written, found {error}: give another."
            ) from error
    return path


def reset() -> None:
    """Undo the logging set-up: the next command may have other options."""
    console.quiet = False
    for handler in [handler for handler in covey.handlers if handler.name == OURS]:
        covey.removeHandler(handler)
        handler.close()
    covey.setLevel(logging.NOTSET)


def _add(handler: logging.Handler) -> None:
    handler.name = OURS
    handler.setFormatter(logging.Formatter(FORM))
    covey.addHandler(handler)
    covey.setLevel(logging.DEBUG)


def bar_of(title: str) -> Progress:
    """Return a bar with its title, a count and the time left, which a terminal alone shows.

    A bar that is opened inside another one stands below it.
    """
    from rich import progress as bars  # the slow half of rich

    name = title.replace("{", "{{").replace("}", "}}")
    text = bars.TextColumn(f"{name} {{task.description}}", markup=False)
    columns = text, bars.BarColumn(), bars.MofNCompleteColumn(), bars.TimeRemainingColumn()
    is_live = console.is_terminal and not console.quiet
    return bars.Progress(*columns, console=console, disable=not is_live)


@contextmanager
def shown(title: str) -> Generator[Observer]:
    """Show a run as it goes on, and log every round."""
    bar = bar_of(title)
    known, task = 0, bar.add_task("", total=None)

    def observe(history: History) -> None:
        nonlocal known
        if history.preparing:
            done, total = history.preparing
            bar.update(task, description="features", completed=done, total=total)
            return
        is_new, known = len(history.rounds) > known, len(history.rounds)
        bar.update(
            task, description="", completed=known, total=history.started and history.started.rounds
        )
        if is_new:
            from covey.report.queries import round_line

            row, line = history.rounds[-1], round_line(history)
            if not console.quiet:
                print(line, file=sys.stderr)  # above the bar, if there is one
            clients = ", ".join(map(str, row.clients))
            number, participants = row.round_index + 1, row.participants
            log.info(
                "round %d: %d clients took part, %s per cluster", number, participants, clients
            )

    with bar:
        yield observe


class TerminatedError(KeyboardInterrupt):
    """SIGTERM, raised where Ctrl-C would be."""


class StoppedError(Exception):
    """A command was stopped; the sentence says how to carry on.

    Attributes:
        exit_code: 128 and the signal's number, as shells have it.
    """

    def __init__(self, sentence: str, signal_number: int) -> None:
        super().__init__(sentence)
        self.exit_code = 128 + signal_number


@contextmanager
def stoppable(run: Path, carry_on: str = "") -> Generator[None]:
    """Turn a signal into a sentence: every round that was recorded is kept.

    Args:
        run: the folder of the run that is played.
        carry_on: the command that goes on with it; by default `covey resume`.

    Raises:
        StoppedError: the process got a signal to stop.
    """
    try:
        with sigterm_raised():
            yield
    except KeyboardInterrupt as stopped:
        ended = isinstance(stopped, TerminatedError)
        from covey.runs.folder import RunFolder
        from covey.runs.reading import describe_reached

        command = carry_on or f"covey resume {shlex.quote(str(run))}"
        raise StoppedError(
            f"stopped {describe_reached(RunFolder(run))}; continue: {command}",
            signal.SIGTERM if ended else signal.SIGINT,
        ) from None


@contextmanager
def sigterm_raised() -> Generator[None]:
    """Raise `TerminatedError` at SIGTERM."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are the main thread's
        return

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise TerminatedError

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
