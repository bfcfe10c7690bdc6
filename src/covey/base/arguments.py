"""Arguments of the Python API, which no settings file guards: numbers by their kind, and places."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from numbers import Integral, Real
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from covey.base.errors import ConfigError

Inside = Annotated[float, Field(gt=0, lt=1)]
"""A number between 0 and 1, and neither."""


_OF_KEYS = {"missing": "must be there", "extra_forbidden": "must not be there"}


def must_be(error: Mapping[str, Any]) -> str:
    """Return what a value must be by a mistake of pydantic's: "must be greater than 0"."""
    message: str = error["msg"].removeprefix("Value error, ")
    if error["type"] in _OF_KEYS:
        return _OF_KEYS[error["type"]]
    _, should, wanted = message.partition(" should ")
    return f"must {wanted}" if should else f"must be possible ({message[0].lower()}{message[1:]})"


@cache
def _reader(kind: Any) -> Callable[[Any], Any]:  # noqa: ANN401 - an annotated type
    return TypeAdapter(kind, config=ConfigDict(strict=True, allow_inf_nan=False)).validate_python


def in_range(name: str, value: Any, kind: Any) -> Any:  # noqa: ANN401 - numbers of any library
    """Return an argument as Python's own number, where it is of its kind.

    Args:
        name: of the argument, as the caller wrote it.
        value: a number of any library.
        kind: such as `covey.base.components.Share`, which says what it may be.

    Raises:
        ConfigError: it is not.
    """
    plain = value
    if type(value) is not bool and isinstance(value, Integral | Real):
        plain = int(value) if isinstance(value, Integral) else float(value)
    try:
        return _reader(kind)(plain)
    except ValidationError as error:
        must = must_be(error.errors()[0])
        raise ConfigError(f"{name} {must}, found {value!r}: correct it.") from None


def place(name: str, value: object) -> Path:
    """Return an argument that names a file or a folder as a path.

    Raises:
        ConfigError: it names none.
    """
    if isinstance(value, str | os.PathLike) and "\0" not in (text := os.fsdecode(value)):
        return Path(text)
    raise ConfigError(f"{name} must be a path, found {value!r}: pass a text or a pathlib.Path.")


@contextmanager
def usable(path: Path) -> Iterator[None]:
    """Turn what the system says of a place that a caller named into an error that names it.

    Raises:
        ConfigError: it cannot be used.
    """
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"{path} must be usable, found {error.strerror or error}: check its rights and space."
        ) from error
