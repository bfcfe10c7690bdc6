"""Standard error: progress, what must be read, and logs.

Standard output belongs to answers and `--json`. Logs hold steps, rounds and handles, never
data, keys or names; the logger is "covey", so a program that calls covey can take them too.
"""

import logging
import sys
from functools import partial
from pathlib import Path

from rich.console import Console

from covey.base.errors import ConfigError

FORM = "%(asctime)s %(levelname)s %(name)s: %(message)s"
OURS = "covey command line"
"""The name of the handlers that are added here, and taken away again."""

covey = logging.getLogger("covey")

_literal = partial(Console, stderr=True, markup=False, emoji=False, highlight=False)

console = _literal()
"""For progress; `--quiet` silences it."""

errors = _literal()
"""For what must be read: errors, and what is shown only once."""


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
