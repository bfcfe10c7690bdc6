"""A user's own code at work: its errors, what it writes into, and what it draws from."""

import functools
import logging
import random
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np
import torch
from pydantic import BaseModel
from torch import Tensor

from covey.base.errors import ConfigError, CoveyError, blamed

P = ParamSpec("P")
R = TypeVar("R")
READ = 2**26
"""Bytes whose contents are compared; of what is beyond, whether torch wrote into it."""

Leaf = Tensor | np.ndarray


def user_function(
    what: str, function: Callable[P, R], kind: type[CoveyError] = ConfigError
) -> Callable[P, R]:
    """Return a user's own function, whose errors are reported as its own.

    Its arguments are read-only: others go on from them.

    Args:
        what: it is called in messages, for example "selection mine:cautious".
        function: the user's.
        kind: of the error that is raised from the function's.
    """

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        with read_only(what, (args, kwargs), kind), blamed(kind, f"Your {what}", "Correct it."):
            return function(*args, **kwargs)

    return call


@contextmanager
def read_only(
    what: str, arguments: object, kind: type[CoveyError] = ConfigError
) -> Generator[None]:
    """Refuse that tensors and arrays among the arguments of a user's own code are changed.

    Raises:
        CoveyError: of this kind, naming the part and what it wrote into.
    """
    left, seen = READ, list[tuple[str, Leaf, object]]()
    for name, leaf in _leaves(arguments, "", set()):
        left -= leaf.nbytes
        seen.append((name, leaf, _content(leaf, read=left >= 0)))
    yield
    for name, leaf, content in seen:
        if _content(leaf, read=isinstance(content, int)) != content:
            raise kind(
                f"Your {what} must not write into its arguments, from which others "
                f"go on, found that it changed {name.lstrip('.')}. Change a copy: "
                f"value.clone() of a tensor, value.copy() of an array."
            )


def _content(leaf: Leaf, *, read: bool) -> object:
    """Return a checksum; where nothing is read, how often torch wrote into a tensor."""
    if isinstance(leaf, Tensor):
        if not read or leaf.device.type != "cpu":
            return None if leaf.is_inference() else ("version", leaf._version)
        leaf = leaf.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
    if not read:
        return None
    # of an empty array of several axes no view of bytes can be had
    return zlib.crc32(np.ascontiguousarray(leaf).data.cast("B")) if leaf.size else 0


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


log = logging.getLogger(__name__)


@dataclass
class GlobalRandomness:
    """Warns once where a user's parts draw from what a process shares.

    Nothing of covey's own draws from what torch, numpy and Python share in a process. A
    part that does makes a run that cannot be resumed or replayed to the same models.

    Attributes:
        parts: the user's own that may be called, for the message; none: nothing is watched.
        warned: whether it was said.
    """

    parts: Sequence[str] = ()
    warned: bool = False

    @contextmanager
    def watched(self) -> Generator[None]:
        """Watch what is called meanwhile."""
        if self.warned or not self.parts:
            yield
            return
        before = _states()
        try:
            yield
        finally:
            after = _states()
            moved = [name for name in before if before[name] != after[name]]
            if moved:
                self.warned = True
                log.warning(
                    "Your %s must draw from the streams or the generator that it gets, "
                    "but the global random state of %s was used: a run that is resumed, or "
                    "played again for somebody who leaves, will draw otherwise and end in "
                    "other models. Draw from streams.at('a name').generator().",
                    ", or your ".join(self.parts),
                    " and ".join(moved),
                )


@contextmanager
def global_draws_restored() -> Generator[None]:
    """Leave Python's random state as it was, so that no user's part is blamed for a draw."""
    before = random.getstate()
    try:
        yield
    finally:
        random.setstate(before)


def _states() -> dict[str, object]:
    kind, keys, *rest = np.random.get_state()  # noqa: NPY002 - it is looked at
    return {
        "torch": torch.get_rng_state().numpy().tobytes(),
        "numpy": (kind, np.asarray(keys).tobytes(), *rest),
        "Python": random.getstate(),
    }
