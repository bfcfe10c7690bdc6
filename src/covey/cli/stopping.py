"""Ctrl-C and SIGTERM end a command with a sentence: every recorded round stays."""

import shlex
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType


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
