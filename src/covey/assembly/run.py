"""From settings to everything that a run is made of."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import nn

from covey.assembly.methods import (
    Again,
    composed,
    notes,
    num_clusters,
    releases,
    retrial,
)
from covey.assembly.populations import data_hash, population_and_notes
from covey.config import Config
from covey.data import Client, Examples, Population
from covey.engine import (
    Engine,
    ParallelEngine,
    ReferenceEngine,
    VmapEngine,
    check_private,
)
from covey.errors import ConfigError, DataError
from covey.models import (
    build_model,
    check_model,
    initial_params,
    refuse_batch_norm,
)
from covey.redteam import Reference, Retrial
from covey.rng import Streams
from covey.strategies import Strategy
from covey.types import ClientName, Params

__all__ = ["Assembled", "Given", "assemble"]


@dataclass(frozen=True, slots=True, eq=False)
class Given:
    """What a program passes by hand instead of naming it in the settings."""

    model: Callable[[], nn.Module] | None = None
    clients: Mapping[ClientName, Examples] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Assembled:
    """Everything that a run is made of.

    Attributes:
        init: draws a fresh model.
        notes: what a reader of the results must know: oracles in use, missing files.
    """

    config: Config
    streams: Streams
    population: Population
    engine: Engine
    init: Callable[[Streams], Params]
    strategy: Strategy
    num_clusters: int
    releases: int
    reference: Reference
    retrial: Retrial
    notes: tuple[str, ...]
    data_hash: str

    def among(self, clients: tuple[Client, ...]) -> "Assembled":
        """Return the same run with these clients instead of its own."""
        population = replace(self.population, clients=clients)
        parts = (self.config, population, self.engine, self.init)
        return replace(
            self,
            population=population,
            strategy=composed(*parts),
            num_clusters=num_clusters(self.config, population),
            retrial=retrial(*parts),
            data_hash=data_hash(population),
        )

    def again(self, how: Again) -> "Assembled":
        """Return the same run for rounds that were played before."""
        parts = (self.config, self.population, self.engine, self.init)
        return replace(self, strategy=composed(*parts, how))


def assemble(config: Config, given: Given | None = None) -> Assembled:
    """Read the data, build the model, and compose the strategy.

    Raises:
        CoveyError: some part does not fit; nothing has been written.
    """
    given = given or Given()
    streams = Streams(config.seed)
    population, of_data = population_and_notes(config, given.clients, streams)
    _check_hiding(config, population)
    module, init = _model(config, given, population)
    engine = _engine(config, module)
    return Assembled(
        config=config,
        streams=streams,
        population=population,
        engine=engine,
        init=init,
        strategy=composed(config, population, engine, init),
        num_clusters=num_clusters(config, population),
        releases=releases(config),
        reference=Reference(population.non_members),
        retrial=retrial(config, population, engine, init),
        notes=(*of_data, *notes(config)),
        data_hash=data_hash(population),
    )


def _check_hiding(config: Config, population: Population) -> None:
    k, clients = config.merge.min_anonymity, len(population.clients)
    if config.merge.name == "anonymity-sets" and k > clients:
        raise ConfigError(
            f"merge.min_anonymity (k) is how many clients hide together, so at most as "
            f"many as there are, {clients}, found {k}. Lower k."
        )


def _model(
    config: Config, given: Given, population: Population
) -> tuple[nn.Module, Callable[[Streams], Params]]:
    """Return the architecture, and how to draw a fresh initial model."""
    shapes = {tuple(c.train.inputs.shape[1:]) for c in population.clients}
    if len(shapes) > 1:
        raise DataError(
            f"All clients' examples must have one shape, found {sorted(shapes)}. "
            f"Bring them to one shape."
        )
    shape, classes = shapes.pop(), population.num_classes
    if given.model is None and config.model.name == "python":
        raise ConfigError(
            "The model of this run was passed by a Python program, and only such a "
            "program can pass it again: call covey.resume(folder, model, clients), or "
            "covey.audit(folder, model=..., clients=...)."
        )

    def build(streams: Streams) -> nn.Module:
        if given.model is None:
            return build_model(config.model.name, shape, classes, streams)
        with streams.lent_to_torch():
            return given.model()

    module = build(Streams(config.seed).at("architecture"))
    check_model(module, shape, classes)
    if config.privacy.record_clip > 0:
        check_private(module)
    if config.privacy.client_noise > 0 or config.merge.noise == "sound":
        refuse_batch_norm(module, "Hiding a client in noise")
    return module, lambda streams: initial_params(build(streams))


def _engine(config: Config, module: nn.Module) -> Engine:
    settings = config.engine
    name = settings.name
    if name == "auto":
        on_gpu = torch.cuda.is_available() and config.privacy.record_clip == 0
        name = "vmap" if on_gpu else "parallel"
    if settings.precision != "float32" and name != "parallel":
        raise ConfigError(
            f"engine.precision = {settings.precision!r} is for the parallel engine, "
            f"found {name!r}. Set engine.name = 'parallel', or leave the precision."
        )
    if name == "reference":
        return ReferenceEngine(module)
    if name == "vmap":
        return VmapEngine(module, "cuda" if torch.cuda.is_available() else "cpu")
    workers = settings.workers or len(os.sched_getaffinity(0))
    return ParallelEngine(module, workers, settings.precision)
