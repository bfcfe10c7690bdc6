"""What a request to leave may ask for, and what a client may bring."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from covey.data import read_client
from covey.errors import ConfigError
from covey.runtime import Returning
from covey.types import BASES, Basis, ClientName
from covey.unlearning import ANSWERS

__all__ = ["Names", "Several", "basis_of", "examples_in", "listed", "wanted_answer"]

Who = ClientName | Returning
Several = list[ClientName] | list[Who]
Names = Who | Several | tuple[Who, ...]
"""One client or several: by name or, who has left, by name and salt."""


def wanted_answer(answer: str | None, basis: str | None) -> tuple[str, Basis]:
    """Return the answer that is wanted, and what the request rests on.

    Raises:
        ConfigError: neither of them is given, or there is no such one.
    """
    if answer is None and basis is None:
        raise ConfigError(
            "Letting somebody leave takes an answer or the request's basis, found neither. "
            f"Give answer= auto, {', '.join(ANSWERS)}, or basis= {', '.join(BASES)}; "
            f"plan(name) shows what each answer costs."
        )
    if answer not in (None, "auto", *ANSWERS):
        raise ConfigError(
            f"answer takes auto, {', '.join(ANSWERS)}, found {answer!r}. Choose one."
        )
    return answer or "auto", basis_of(basis or "none")


def basis_of(basis: str) -> Basis:
    """Return what a request rests on.

    Raises:
        ConfigError: nothing that covey knows.
    """
    if basis not in BASES:
        raise ConfigError(
            f"basis takes {', '.join(BASES)}, found {basis!r}. Choose one."
        )
    return basis


def listed(names: Names) -> tuple[Who, ...]:
    """Return one client or several as several, each once."""
    one = isinstance(names, str | Returning)
    several: Sequence[Who] = (names,) if one else names
    return tuple(dict.fromkeys(several))


def examples_in(data: Any) -> Any:  # noqa: ANN401 - as `clients_of` takes one client's
    """Return what a client brings; of a path, what its .npz file holds.

    Raises:
        DataError: the file is malformed.
    """
    return read_client(Path(data)) if isinstance(data, str | Path) else data
