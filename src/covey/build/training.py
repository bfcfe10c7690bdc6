"""From settings to a recipe: how clients train, with parts of a user's own."""

import functools
import logging
import random
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np
import torch
from pydantic import BaseModel
from torch import Tensor

from covey.algorithms.client_requests import SummedUp
from covey.base.errors import ConfigError, CoveyError, ModelError
from covey.base.names import Params
from covey.base.rng import Streams
from covey.components.own_code import raised_at
from covey.components.parts import components_in
from covey.config.problems import kind_at
from covey.config.sections import recipe_of
from covey.config.settings import Config
from covey.data.examples import Client, Examples
from covey.engine.protocol import Engine, ScoringJob, TrainingJob, used_examples
from covey.engine.recipe import Recipe

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
def read_only(what: str, given: object, kind: type[CoveyError] = ConfigError) -> Generator[None]:
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


def summed_up(config: Config) -> frozenset[SummedUp]:
    """Return what of clients' a server needs sums of, for these settings."""
    of = "sums" if config.method.subtracts else "updates"
    counts = config.risk.measures and not config.risk.on_clients
    return frozenset((of, "counts") if counts else (of,))


def masks_told(config: Config) -> str:
    """Return against whom masks protect what clients add up; "": there are none."""
    if not config.privacy.secure_sums:
        return ""
    bare = {"counts": "counts of losses", "updates": "updates"}
    told = [bare[of] for of in sorted(summed_up(config) & bare.keys())]
    sums = (
        "Masks protect clients' sums over records from a malicious server too, as long as "
        "fewer than a fifth of the clients, and than min_cohort - 1, help it: a node opens "
        "sums over one cohort alone, in whatever runs."
    )
    if not told:
        return sums
    few = (
        f"Masks protect clients' {' and '.join(told)} from a server that keeps to the "
        f"protocol, and from no other: one that asks again without one client, about a "
        f"model that differs a little, has that client's own. Against it helps noise of "
        f"the clients' own alone (privacy.record_noise, in simulations)."
    )
    return f"{sums} {few}" if "sums" in summed_up(config) else few


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
                    "Your %s must draw from the streams or the generator that it is given, "
                    "but the global random state of %s was used: a run that is resumed, or "
                    "played again for somebody who leaves, will draw otherwise and end in "
                    "other models. Draw from streams.at('a name').generator().",
                    ", or your ".join(self.parts),
                    " and ".join(moved),
                )


def own_parts(config: Config) -> tuple[str, ...]:
    """Return the user's own parts that the settings name, as messages call them."""
    return tuple(
        f"{kind_at(key.split('.')).replace('_', ' ')} {component.name}"
        for key, component in components_in(config)
        if component.is_own and key not in ("data", "metrics", "tracking")
    )


def _states() -> dict[str, object]:
    kind, keys, *rest = np.random.get_state()  # noqa: NPY002 - it is looked at
    return {
        "torch": torch.get_rng_state().numpy().tobytes(),
        "numpy": (kind, np.asarray(keys).tobytes(), *rest),
        "Python": random.getstate(),
    }


def check_trains(config: Config, engine: Engine, start: Params, clients: Sequence[Client]) -> None:
    """Train and ask a model once on clients' real batches, and forget what came of it.

    The batches are a usual one, the smallest that any client has, and those that hold the
    largest and the smallest whole number: an embedding may be too short for them.

    Raises:
        ModelError: naming the client on whose batch the model failed, and how.
    """
    streams = Streams(config.seed).at("trial")
    # where examples are drawn, each is for certain
    usual = replace(recipe_of(config), local_steps=1, record_noise=0.0)
    for client, batch in _batches(config, [each for each in clients if len(each.train)]):
        job = TrainingJob(start, batch, streams, replace(usual, batch_size=len(batch)))
        try:
            list(engine.train([job]))
            engine.score([ScoringJob(start, batch)])
        except CoveyError as error:
            raise ModelError(f"{_whose(client, batch)}: {error}") from error
        except Exception as error:
            raise ModelError(
                f"{_whose(client, batch)}: a step of training the model raised "
                f"{type(error).__name__}: {error}{raised_at(error)}. Correct the model, or "
                f"choose another engine.name than {config.engine.name!r}."
            ) from error


def _whose(client: Client, batch: Examples) -> str:
    return f"On {len(batch)} examples of {client.name}"


def _batches(config: Config, clients: Sequence[Client]) -> Iterator[tuple[Client, Examples]]:
    if not clients:
        return
    size = config.train.batch_size
    usual = clients[0].train.first(size)
    yield clients[0], usual
    recipe = recipe_of(config)
    least = min(clients, key=lambda client: _last(client, recipe))
    if config.privacy.record_clip == 0 and _last(least, recipe) < len(usual):
        yield least, least.train.first(_last(least, recipe))
    if clients[0].train.inputs.dtype != torch.float32:  # ids, or several inputs
        yield from _extremes(clients)


def _last(client: Client, recipe: Recipe) -> int:
    """Return how many examples an epoch's last batch has."""
    return used_examples(len(client.train), recipe) % recipe.batch_size or recipe.batch_size


def _extremes(clients: Sequence[Client]) -> Iterator[tuple[Client, Examples]]:
    for sign in (1, -1):
        most = [(sign * each.train.inputs.flatten(1).long()).amax(dim=1) for each in clients]
        client, largest = max(zip(clients, most, strict=True), key=lambda pair: int(pair[1].max()))
        at = largest.argmax()
        yield client, client.train.take(torch.stack([at, at]))
