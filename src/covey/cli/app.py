"""The command line: exit codes, error sentences, and one JSON object per command.

Where people read: standard error; standard output belongs to answers and `--json`.

Text is printed as text: brackets and colons in a message are part of it.

What is logged, and where: steps, rounds and handles, never data, keys or names.

All of it goes to the logger "covey", so a program that calls covey can take it too.
"""

import json
import logging
import os
import shlex
import signal
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Annotated

import click
import typer
from rich.console import Console

from covey.base.errors import (
    ConfigError,
    CoveyError,
    LedgerError,
    LedgerLocked,
    LedgerUnavailable,
    raised_at,
)
from covey.cli.answer import FAILED_CHECK, has_answered
from covey.cli.commands import all_commands, app

literal = partial(Console, stderr=True, markup=False, emoji=False, highlight=False)

console = literal()
"""For what goes on meanwhile; `--quiet` silences it."""

errors = literal()
"""For what must be read: errors, and what is shown only once."""


FORM = "%(asctime)s %(levelname)s %(name)s: %(message)s"
OURS = "covey command line"
"""The name of the handlers that are added here, and taken away again."""

covey = logging.getLogger("covey")


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
                f"--log-file must be a file that can be written, but: {error}. Give another."
            ) from error
    return path


def reset() -> None:
    """Undo the logging set-up: the next command may have other options."""
    console.quiet = False
    for handler in [each for each in covey.handlers if each.name == OURS]:
        covey.removeHandler(handler)
        handler.close()
    covey.setLevel(logging.NOTSET)


def _add(handler: logging.Handler) -> None:
    handler.name = OURS
    handler.setFormatter(logging.Formatter(FORM))
    covey.addHandler(handler)
    covey.setLevel(logging.DEBUG)


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
        command = carry_on or f"covey resume {shlex.quote(str(run))}"
        raise StoppedError(
            f"stopped {_reached(run)}; carry on: {command}",
            signal.SIGTERM if ended else signal.SIGINT,
        ) from None


@contextmanager
def sigterm_raised() -> Generator[list[int]]:
    """Raise `TerminatedError` at SIGTERM; what is yielded then holds its number."""
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield came  # signals are the main thread's
        return

    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        came.append(number)
        raise TerminatedError

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield came
    finally:
        signal.signal(signal.SIGTERM, before)


def _reached(path: Path) -> str:
    """Say how many rounds are recorded."""
    from covey.ledger.store import Ledger
    from covey.runtime.folder import RunFolder

    folder, last = RunFolder(path), None
    try:
        if Ledger.exists(folder.ledger):
            with Ledger.read(folder.ledger) as ledger:
                last = ledger.last_round()
    except LedgerError:
        return f"in {path}"
    if last is None:
        return "before the first round was complete"
    return f"after round {min(last + 1, folder.config().rounds)}"


READING = {
    *("explain", "export", "report", "runs", "serve", "verify"),
    *("ledger head", "ledger keys"),
}
"""Commands that import nothing from the current folder, whatever lies there."""

BAD_INPUT, INTERRUPTED, TERMINATED = 2, 130, 143

log = logging.getLogger("covey.cli")


def _print_version(wanted: bool) -> bool:
    if wanted:
        from covey.base.names import __version__

        print(f"covey {__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def _globally(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Say which covey this is."
        ),
    ] = False,
    quiet: Annotated[
        bool,
        typer.Option(
            "--quiet", "-q", callback=be_quiet, help="Show no progress, only results and errors."
        ),
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose", "-v", callback=be_verbose, help="Log each step to standard error."
        ),
    ] = False,
    log_file: Annotated[
        Path | None,
        typer.Option(
            "--log-file", callback=log_into, help="Log each step to the end of this file."
        ),
    ] = None,
) -> None:
    """Accept the options of every command; their callbacks have applied them."""


def main() -> None:
    """Run the command line; whatever goes wrong is one sentence and an exit code."""
    words = _command()
    if not READING & {words[0], " ".join(words)}:
        _find_users_modules()
    has_answered.set(False)
    reset()
    try:
        with sigterm_raised() as terminated:
            code = all_commands()(standalone_mode=False) or 0
        if code == INTERRUPTED:
            code = TERMINATED if terminated else INTERRUPTED
            _failed("Stopped", "stopped before it was done", code, show=True)
    except click.ClickException as error:
        error.show()
        code = _failed("UsageError", error.format_message(), error.exit_code)
    except click.Abort:
        code = _failed("Aborted", "Stopped: nothing was answered.", INTERRUPTED, show=True)
    except StoppedError as stopped:
        code = _failed("Stopped", str(stopped), stopped.exit_code, show=True)
    except (CoveyError, OSError) as error:
        code = _failed(type(error).__name__, str(error), exit_code(error), show=True)
    except Exception as error:
        log.exception("what follows was not expected")
        code = _failed(type(error).__name__, _unexpected(error), BAD_INPUT, show=True)
    log.info("ended with exit code %d", code)
    raise SystemExit(code)


def _command() -> tuple[str, str]:
    """Return the command that is called, and the word after it; options may stand anywhere."""
    words = iter(sys.argv[1:])
    plain: list[str] = []
    for word in words:
        if word == "--log-file":
            next(words, None)
        elif not word.startswith("-"):
            plain.append(word)
    first, second, *_ = (*plain, "", "")
    return first, second


def exit_code(error: CoveyError | OSError) -> int:
    """Return 1 where a record failed its check, else 2: it cannot be done as requested."""
    unreadable = isinstance(error, LedgerUnavailable | LedgerLocked)
    return FAILED_CHECK if isinstance(error, LedgerError) and not unreadable else BAD_INPUT


def _unexpected(error: Exception) -> str:
    """Return a sentence on an error that no part of covey has put into words."""
    if isinstance(error, MemoryError):
        return "this needs more memory than there is. Make models or data smaller."
    if isinstance(error, RecursionError):
        return "a file is nested too deeply to be one of covey's. Restore it."
    if where := raised_at(error):
        return (
            f"code of your own raised {type(error).__name__}: {error}{where}. Correct it, "
            f"or say -v to see how it was called."
        )
    return (
        f"this stopped at something that was not expected: {type(error).__name__}: "
        f"{error}. If a file was changed or damaged, restore it; else say -v to see "
        f"where, and report it."
    )


def _failed(kind: str, message: str, code: int, *, show: bool = False) -> int:
    """Print what went wrong: for people, and with --json for programs as well."""
    if show:
        errors.print(
            f"covey: {message}", style="red", highlight=False, soft_wrap=True, markup=False
        )
    if "--json" in sys.argv and not has_answered.get():
        failure = {"error": {"type": kind, "message": message, "exit_code": code}}
        print(json.dumps(failure, indent=2))
    return code


def _find_users_modules() -> None:
    """Let commands that run elsewhere find a user's own functions in this folder.

    After Python's own modules, which are still being loaded, before installed ones.
    """
    names = ("site-packages", "dist-packages")
    installed = (i for i, path in enumerate(sys.path) if Path(path).name in names)
    sys.path.insert(next(installed, len(sys.path)), os.getcwd())  # noqa: PTH109
