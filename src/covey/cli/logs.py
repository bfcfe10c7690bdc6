"""What is logged, and where: steps, rounds and handles, never data, keys or names.

All of it goes to the logger "covey", so a program that calls covey can take it too.
"""

import logging
import sys
from pathlib import Path

from covey.cli import consoles
from covey.errors import ConfigError

__all__ = ["be_quiet", "be_verbose", "log_into", "reset"]

FORM = "%(asctime)s %(levelname)s %(name)s: %(message)s"
OURS = "covey command line"
"""The name of the handlers that are added here, and taken away again."""

covey = logging.getLogger("covey")


def be_quiet(wanted: bool) -> bool:
    """Show no progress."""
    consoles.console.quiet |= wanted
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
                f"--log-file must be a file that can be written, but: {error}. "
                f"Give another."
            ) from error
    return path


def reset() -> None:
    """Undo the logging set-up: the next command may have other options."""
    consoles.console.quiet = False
    for handler in [each for each in covey.handlers if each.name == OURS]:
        covey.removeHandler(handler)
        handler.close()
    covey.setLevel(logging.NOTSET)


def _add(handler: logging.Handler) -> None:
    handler.name = OURS
    handler.setFormatter(logging.Formatter(FORM))
    covey.addHandler(handler)
    covey.setLevel(logging.DEBUG)
