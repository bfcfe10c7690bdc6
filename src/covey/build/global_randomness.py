"""Random state that a whole program shares, which a user's parts must not draw from."""

import logging
import random
from collections.abc import Callable, Sequence
from functools import wraps
from typing import ParamSpec, TypeVar

import numpy as np
import torch

from covey.components import ComponentSection, is_built_in
from covey.config import Config

__all__ = ["noticing_global_randomness", "own_parts"]

P = ParamSpec("P")
R = TypeVar("R")

log = logging.getLogger(__name__)


def noticing_global_randomness(
    parts: Sequence[str], function: Callable[P, R]
) -> Callable[P, R]:
    """Return a function that calls a user's parts, and warns once if they draw globally.

    Nothing of covey's own draws from what torch, numpy and Python share in a process. A
    part that does makes a run that cannot be resumed or replayed to the same models.

    Args:
        parts: the user's own that may be called, for the message; none: nothing is watched.
        function: calls them.
    """
    warned = False

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        nonlocal warned
        if warned:
            return function(*args, **kwargs)
        before = _states()
        try:
            return function(*args, **kwargs)
        finally:
            after = _states()
            moved = [name for name in before if before[name] != after[name]]
            if moved:
                warned = True
                log.warning(
                    "Your %s must draw from the streams or the generator that it is given, "
                    "but the global random state of %s was used: a run that is resumed, or "
                    "played again for somebody who leaves, will draw otherwise and end in "
                    "other models. Draw from streams.at('a name').generator().",
                    ", or your ".join(parts),
                    " and ".join(moved),
                )

    return call if parts else function


def own_parts(config: Config) -> tuple[str, ...]:
    """Return the user's own parts that the settings name, as messages call them."""
    return tuple(
        f"{kind.replace('_', ' ')} {name}"
        for _, section in config
        if isinstance(section, ComponentSection)
        for field, kind in type(section).slots.items()
        if isinstance(name := getattr(section, field), str)
        and kind not in ("data", "tracker")
        and not is_built_in(kind, name)
    )


def _states() -> dict[str, object]:
    kind, keys, *rest = np.random.get_state()  # noqa: NPY002 - it is looked at
    return {
        "torch": torch.get_rng_state().numpy().tobytes(),
        "numpy": (kind, np.asarray(keys).tobytes(), *rest),
        "Python": random.getstate(),
    }
