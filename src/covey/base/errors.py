"""Everything covey raises on purpose.

    CoveyError
    ├── ConfigError          a setting is unknown, impossible or not built yet
    ├── DataError            a data file is missing, malformed or too small
    │   └── ChecksumError    a data file is not the published one
    ├── ModelError           a model does not fit its data or cannot be reproduced
    ├── EngineError          what trains clients was lost, again and again
    ├── RunError             a folder is not a covey run, or not in the needed state
    └── LedgerError          the record of a run cannot be trusted or written
        ├── LedgerUnavailable  no ledger can be kept or reached at its address
        ├── LedgerLocked     another process is writing it
        └── LedgerMismatch   a replayed round differs from the recorded one

Every message says what was expected, what was found and what to do.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from traceback import walk_tb


class CoveyError(Exception):
    """The root of every error that covey raises on purpose."""


class ConfigError(CoveyError):
    """A setting is unknown, impossible or belongs to a capability not built yet."""


class DataError(CoveyError):
    """A data file is missing, malformed or holds too few examples."""


class ChecksumError(DataError):
    """A data file's bytes are not those of the published file."""


class ModelError(CoveyError):
    """A model does not fit its data, or its training cannot be reproduced."""


class EngineError(CoveyError):
    """What trains clients, on other machines, was lost as often as it was tried."""


class RunError(CoveyError):
    """A folder is not a covey run, or is not in the state that a command needs."""


class LedgerError(CoveyError):
    """The record of a run cannot be trusted or cannot be written."""


class LedgerUnavailable(LedgerError):  # noqa: N818
    """A ledger's address is no good, or what is there cannot be opened."""


class LedgerLocked(LedgerError):  # noqa: N818 - reads as the fact it states
    """Another process is writing this ledger."""


class LedgerMismatch(LedgerError):  # noqa: N818
    """A replayed round does not equal the round that was recorded."""


NOT_A_USERS = {"PIL", "covey", "jaxtyping", "numpy", "pydantic", "safetensors", "torch"}
NOT_A_USERS |= sys.stdlib_module_names


def raised_at(error: BaseException) -> str:
    """Return where in a user's own code an error was raised: " in FILE, line N", or ""."""
    place = ""
    for frame, line in walk_tb(error.__traceback__):
        module = str(frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] not in NOT_A_USERS:
            place = f" in {frame.f_code.co_filename}, line {line}"
    return place


@contextmanager
def blamed(kind: type[CoveyError], subject: str, remedy: str) -> Iterator[None]:
    """Turn what foreign code raises inside into an error that names it, and its line.

    Raises:
        CoveyError: of this kind, or as it was raised inside.
    """
    try:
        yield
    except CoveyError:
        raise
    except Exception as error:  # foreign code may raise anything
        what = f"{type(error).__name__}: {error}{raised_at(error)}"
        raise kind(f"{subject} raised {what}. {remedy}") from error
