"""The command line: exit codes, one sentence per error, and one JSON object per command."""

import json
import logging
import os
import shlex
import sys
from pathlib import Path

import click

from covey.base.errors import (
    CoveyError,
    LedgerError,
    LedgerLocked,
    LedgerUnavailable,
    UnfinishedError,
    raised_at,
)
from covey.base.names import __version__
from covey.cli.answer import BAD_INPUT, FAILED_CHECK, has_answered
from covey.cli.commands import app
from covey.cli.console import StoppedError, TerminatedError, errors, reset, sigterm_raised

READING = {*("explain", "export", "report", "runs", "serve", "verify"), "ledger keys"}
"""Commands that import nothing from the current folder, whatever lies there."""

INTERRUPTED, TERMINATED = 130, 143

log = logging.getLogger("covey.cli")


def main() -> None:
    """Run the command line; whatever goes wrong is one sentence and an exit code."""
    words = _command()
    if not READING & {words[0], " ".join(words)}:
        _find_users_modules()
    has_answered.set(False)
    reset()
    try:
        with sigterm_raised():
            code = app(prog_name="covey", standalone_mode=False) or 0
    except click.ClickException as error:
        error.show()
        code = _failed("UsageError", error.format_message(), error.exit_code)
    except click.Abort as abort:  # a question without an answer, or click's word for Ctrl-C
        if isinstance(abort.__cause__, KeyboardInterrupt):
            code = TERMINATED if isinstance(abort.__cause__, TerminatedError) else INTERRUPTED
            _failed("Stopped", "stopped before it was done", code, show=True)
        else:
            code = _failed("Aborted", "stopped: nothing was answered", INTERRUPTED, show=True)
    except StoppedError as stopped:
        code = _failed("Stopped", str(stopped), stopped.exit_code, show=True)
    except (CoveyError, OSError) as error:
        code = _failed(type(error).__name__, str(error), exit_code(error), show=True)
    except Exception as error:
        log.exception("internal error, or an error of a user's own code")
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
    """Return 1 where a record failed its check or a run stopped, else 2: it cannot be done."""
    unreadable = isinstance(error, LedgerUnavailable | LedgerLocked)
    failed = isinstance(error, LedgerError | UnfinishedError) and not unreadable
    return FAILED_CHECK if failed else BAD_INPUT


def _unexpected(error: Exception) -> str:
    """Return a sentence on an error that no part of covey has put into words."""
    if isinstance(error, MemoryError):
        return "this needs more memory than there is. Make models or data smaller."
    raised = f"{type(error).__name__}: {error}"
    traceback = f"{shlex.join(['covey', *sys.argv[1:], '-v'])} shows the traceback"
    if where := raised_at(error):
        return f"code of your own raised {raised}{where}. Correct it; {traceback}."
    return (
        f"Internal error: {raised}. Please report it, with what you called and the traceback: "
        f"this is covey {__version__}, and {traceback}."
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
