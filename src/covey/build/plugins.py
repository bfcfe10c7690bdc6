"""A user's own functions, named in settings as `package.module:function`."""

import functools
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np
import torch
from pydantic import BaseModel
from torch import Tensor

from covey.errors import ConfigError, CoveyError
from covey.module_factories import raised_at

__all__ = ["read_only", "user_function"]

P = ParamSpec("P")
R = TypeVar("R")

READ = 2**26
"""Bytes whose contents are compared; of what is beyond, whether torch wrote into it."""

Leaf = Tensor | np.ndarray


def user_function(
    what: str, function: Callable[P, R], kind: type[CoveyError] = ConfigError
) -> Callable[P, R]:
    """Return a user's own function, whose errors are told as its own.

    What it is given is read-only: others go on from it.

    Args:
        what: it is called in messages, for example "selection mine:cautious".
        function: the user's.
        kind: of the error that is raised from the function's.
    """

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        with read_only(what, (args, kwargs), kind):
            try:
                return function(*args, **kwargs)
            except CoveyError:
                raise
            except Exception as error:
                raise kind(
                    f"Your {what} raised {type(error).__name__}: "
                    f"{error}{raised_at(error)}. Correct it."
                ) from error

    return call


@contextmanager
def read_only(
    what: str, given: object, kind: type[CoveyError] = ConfigError
) -> Generator[None]:
    """Refuse that tensors and arrays in what a user's own code is given are changed.

    Raises:
        CoveyError: of this kind, naming the part and what it wrote into.
    """
    left, seen = READ, list[tuple[str, Leaf, object]]()
    for name, leaf in _leaves(given, "", set()):
        left -= leaf.nbytes
        seen.append((name, leaf, _content(leaf, read=left >= 0)))
    yield
    for name, leaf, content in seen:
        if _content(leaf, read=isinstance(content, int)) != content:
            raise kind(
                f"Your {what} must not write into what it is given, from which others "
                f"go on, found that it changed {name.lstrip('.')}. Change a copy: "
                f"value.clone() of a tensor, value.copy() of an array."
            )


def _content(leaf: Leaf, *, read: bool) -> object:
    """Return a checksum; where nothing is read, how often torch wrote into a tensor."""
    if isinstance(leaf, Tensor):
        if not read or leaf.device.type != "cpu":
            return None if leaf.is_inference() else ("version", leaf._version)
        leaf = leaf.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
    return zlib.crc32(np.ascontiguousarray(leaf).data.cast("B")) if read else None


def _leaves(value: Any, path: str, met: set[int]) -> Iterator[tuple[str, Leaf]]:  # noqa: ANN401
    """Yield tensors and arrays with where they are, through records and collections."""
    if isinstance(value, (Tensor, np.ndarray)):
        yield path, value
        return
    if isinstance(value, Mapping):
        tree = cast("Mapping[Any, Any]", value)
        inner = [(f"{path}[{key!r}]", each) for key, each in tree.items()]
    elif isinstance(value, (tuple, list)):
        row = cast("tuple[Any, ...]", value)
        names = getattr(value, "_fields", range(len(row)))
        inner = [(f"{path}[{i}]", each) for i, each in zip(names, row, strict=True)]
    elif isinstance(value, BaseModel):
        inner = [(f"{path}.{key}", each) for key, each in value]
    elif is_dataclass(value) and not isinstance(value, type):
        inner = [(f"{path}.{f.name}", getattr(value, f.name)) for f in fields(value)]
    else:
        return
    if id(value) not in met:
        met.add(id(value))
        for name, each in inner:
            yield from _leaves(each, name, met)
