"""A step for trial: whether a model of the user's own can be trained and asked at all."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from covey.build.local_training import recipe_of
from covey.config import Config
from covey.data import Client, Examples
from covey.engine import Engine, Recipe, ScoringJob, TrainingJob
from covey.engine.batches import used_examples
from covey.errors import CoveyError, ModelError
from covey.module_factories import raised_at
from covey.rng import Streams
from covey.types import Params

__all__ = ["check_trains"]


def check_trains(
    config: Config, engine: Engine, start: Params, clients: Sequence[Client]
) -> None:
    """Train and ask a model once on clients' real batches, and forget what came of it.

    The batches are a usual one, the smallest that any client has, and those that hold the
    largest and the smallest whole number: an embedding may be too short for them.

    Raises:
        ModelError: naming the client on whose batch the model failed, and how.
    """
    streams = Streams(config.seed).at("trial")
    for client, batch in _batches(
        config, [each for each in clients if len(each.train)]
    ):
        job = TrainingJob(start, batch, streams, _one_step(config, len(batch)))
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


def _one_step(config: Config, size: int) -> Recipe:
    """Return one step over all examples; where examples are drawn, each is for certain."""
    recipe = recipe_of(config)
    return replace(recipe, local_steps=1, batch_size=size, record_noise=0.0)


def _batches(
    config: Config, clients: Sequence[Client]
) -> Iterator[tuple[Client, Examples]]:
    if not clients:
        return
    size = config.train.batch_size
    usual = clients[0].train.first(size)
    yield clients[0], usual
    recipe = recipe_of(config)
    least = min(clients, key=lambda client: _last(client, recipe))
    if config.privacy.record_clip == 0 and _last(least, recipe) < len(usual):
        yield least, least.train.first(_last(least, recipe))
    if not clients[0].train.inputs.is_floating_point():
        yield from _extremes(clients)


def _last(client: Client, recipe: Recipe) -> int:
    """Return how many examples an epoch's last batch has."""
    return (
        used_examples(len(client.train), recipe) % recipe.batch_size
        or recipe.batch_size
    )


def _extremes(clients: Sequence[Client]) -> Iterator[tuple[Client, Examples]]:
    for sign in (1, -1):
        client = max(clients, key=lambda each: int((sign * _most(each, sign)).max()))
        at = (sign * _most(client, sign)).argmax()
        yield client, client.train.take(torch.stack([at, at]))


def _most(client: Client, sign: int) -> torch.Tensor:
    """Return each example's largest or smallest number."""
    flat = client.train.inputs.flatten(1).long()
    return flat.amax(dim=1) if sign > 0 else flat.amin(dim=1)
