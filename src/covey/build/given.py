"""What a program passes by hand: its model above all, and how a fresh one is made."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from covey.build.aggregators import noise_on_clients
from covey.build.client_backend import ClientBackend
from covey.build.settled import algorithm_of
from covey.build.stated import Shares
from covey.config import Config
from covey.data import Population, to_floats
from covey.engine import check_private
from covey.errors import ConfigError, DataError
from covey.models import (
    build_model,
    check_model,
    factory_of,
    initial_params,
    refuse_batch_norm,
)
from covey.params import model_hash
from covey.rng import Streams
from covey.types import ClientName, Params

__all__ = ["Overrides", "model_of", "notes_of_model"]


@dataclass(frozen=True, slots=True, eq=False)
class Overrides:
    """What a program passes by hand instead of naming it in the settings.

    Attributes:
        model: builds a fresh module, or is one: then all start with its weights.
        clients: their data, as `covey.data.clients_of` takes them.
        thresholds: what clients accept, by name (`covey.build.stated`).
        risk_weights: their weights on the risk, by name.
        parts: settings in which a program's own parts stand; None: it passed none again.
    """

    model: Callable[[], nn.Module] | nn.Module | None = None
    clients: object = None
    client_backend: ClientBackend | None = None
    thresholds: Shares | None = None
    risk_weights: Shares | None = None
    parts: Config | None = None

    @property
    def named(self) -> frozenset[ClientName]:
        """The clients of which the program says what they want."""
        stated = (self.thresholds, self.risk_weights)
        return frozenset(str(name) for each in stated for name in each or ())


def model_of(
    config: Config, overrides: Overrides, population: Population
) -> tuple[nn.Module, Callable[[Streams], Params]]:
    """Return the architecture, and how to draw a fresh initial model."""
    each = [client.train for client in population.clients]
    shapes = {(tuple(e.inputs.shape[1:]), tuple(e.labels.shape[1:])) for e in each}
    if len(shapes) > 1:
        raise DataError(
            f"All clients' examples must have one shape, found inputs and labels of "
            f"{sorted(shapes)}. Bring them to one shape."
        )
    (shape, _), classes = shapes.pop(), population.num_classes
    task = config.model.task
    if isinstance(overrides.model, nn.Module):
        _refuse_other_starts(config, population)
    factory = None if overrides.model is None else factory_of(overrides.model)

    def build(streams: Streams) -> nn.Module:
        if factory is None:
            name, options = config.model.name, config.model.options
            return build_model(name, shape, classes, streams, task, options)
        with streams.lent_to_torch():
            return factory()

    module = build(Streams(config.seed).at("architecture"))
    seen = to_floats(each[0].inputs).dtype if each else torch.float32
    check_model(module, shape, classes, seen)
    if config.privacy.record_clip > 0:
        check_private(module)
    if noise_on_clients(config):
        refuse_batch_norm(module, "Hiding a client in noise")
    return module, lambda streams: initial_params(build(streams))


def _refuse_other_starts(config: Config, population: Population) -> None:
    """Refuse clusters that are to start from different draws where nothing is drawn."""
    algorithm = algorithm_of(config)
    if algorithm.draws_each and algorithm.num_models(population.clients) > 1:
        raise ConfigError(
            "method.initialisation = 'random' starts every cluster from a draw of its own, "
            "found a module, whose weights are the start of all. Pass a function that "
            "makes a fresh module, or set method.initialisation = 'warm'."
        )


def notes_of_model(overrides: Overrides) -> tuple[str, ...]:
    """Return what a reader must know of where the models start."""
    if not isinstance(overrides.model, nn.Module):
        return ()
    start = model_hash([initial_params(overrides.model)])
    return (
        f"The model was passed as a module: every cluster, and every model that an audit "
        f"trains for comparison, starts from its weights ({start[:12]}), whatever they "
        f"were made of.",
    )
