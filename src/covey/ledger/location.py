"""Where a ledger is, when the settings only say where that is written."""

import os
import stat
import sys
from pathlib import Path

from covey.bounded_io import read_text
from covey.errors import LedgerUnavailable

__all__ = ["resolved"]

ENVIRONMENT, FILE = "env:", "file:"


def resolved(location: str | Path) -> str | Path:
    """Return a path or a URL: of `env:NAME` and `file:PATH`, what stands there.

    Raises:
        LedgerUnavailable: nothing does, or others may read the file.
    """
    if isinstance(location, Path):
        return location
    if location.startswith(ENVIRONMENT):
        return _from_environment(location.removeprefix(ENVIRONMENT))
    if location.startswith(FILE):
        return _from_file(Path(location.removeprefix(FILE)))
    return location


def _from_environment(name: str) -> str:
    url = os.environ.get(name, "").strip()
    if not url:
        raise LedgerUnavailable(
            f"The ledger's URL is to be in the environment variable {name}, but that is "
            f"not set. Set it, for example to postgresql://USER@HOST/DATABASE?run=NAME."
        )
    return url


def _from_file(path: Path) -> str:
    try:
        mode, url = path.stat().st_mode, read_text(path).strip()
    except (OSError, ValueError) as error:
        raise LedgerUnavailable(
            f"The ledger's URL is to be in the file {path}, but it cannot be read "
            f"({type(error).__name__}). Put the URL there, as its only line."
        ) from None
    if sys.platform != "win32" and stat.S_IMODE(mode) & 0o077:
        raise LedgerUnavailable(
            f"{path} holds the ledger's URL, maybe with a password, and must be for its "
            f"owner only, found mode {stat.S_IMODE(mode):04o}. Run `chmod 600 {path}`, "
            f"and change the password if others could read it."
        )
    return url
