"""From settings to everything that a run is made of."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

import torch
from torch import nn

from covey.algorithms import Strategy
from covey.build.algorithms import (
    Again,
    Parts,
    composed,
    notes,
    num_clusters,
    releases,
    retrial,
)
from covey.build.client_backend import Federation
from covey.build.client_runtime import Member
from covey.build.given import Given, model_of, notes_of_model
from covey.build.populations import (
    data_hash,
    population_and_notes,
    preference_of,
)
from covey.build.stated import check_stated, with_stated
from covey.build.trial import check_trains
from covey.config import Config
from covey.data import (
    Client,
    Population,
    Preference,
    absent_population,
)
from covey.engine import (
    TASKS,
    Engine,
    ParallelEngine,
    ReferenceEngine,
    VmapEngine,
)
from covey.errors import ConfigError, DataError
from covey.membership import Reference, Retrial
from covey.models import (
    initial_params,
)
from covey.portable import num_cores
from covey.rng import Streams
from covey.types import ClientName, Params

__all__ = ["Assembled", "Given", "Own", "assemble", "member_of"]


@dataclass(frozen=True, slots=True, eq=False)
class Assembled:
    """Everything that a run is made of.

    Attributes:
        init: draws a fresh model.
        notes: what a reader of the results must know: oracles in use, missing files.
        data_hash: over every client's examples; None: they are not at hand.
        federation: where the clients are really apart, the way to them.
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
    data_hash: str | None
    federation: Federation | None = None

    def joined_by(self, names: Collection[ClientName]) -> "Assembled":
        """Return the same run, in which these clients take part as well."""
        known = {client.name for client in self.population.clients}
        if known.issuperset(names):
            return self
        nothing, classes = self.population.pool, self.population.num_classes
        new = absent_population(known.union(names), nothing, self.streams, classes)
        here = {client.name: client for client in self.population.clients}
        return self.among(tuple(here.get(c.name, c) for c in new.clients))

    def among(self, clients: tuple[Client, ...]) -> "Assembled":
        """Return the same run with these clients instead of its own."""
        population = replace(self.population, clients=clients)
        parts = replace(self._parts(), population=population)
        return replace(
            self,
            population=population,
            strategy=composed(parts),
            num_clusters=num_clusters(self.config, population),
            retrial=retrial(parts),
            data_hash=data_hash(population),
        )

    def again(self, how: Again) -> "Assembled":
        """Return the same run for rounds that were played before."""
        return replace(self, strategy=composed(self._parts(), how))

    def _parts(self) -> Parts:
        reach = self.federation.ask if self.federation else None
        return Parts(self.config, self.population, self.engine, self.init, reach)


def assemble(config: Config, given: Given | None = None) -> Assembled:
    """Read the data, build the model, and compose the strategy.

    Raises:
        CoveyError: some part does not fit; nothing has been written.
    """
    given = given or Given()
    streams = Streams(config.seed)
    usual = preference_of(config, streams)
    config = with_stated(config, given.thresholds, given.risk_weights, usual)
    population, of_data = _population(config, given, streams)
    named = {*(given.thresholds or ()), *(given.risk_weights or ())}
    check_stated(named, [client.name for client in population.clients])
    if given.federation is None:  # where more may come, too few wait
        _check_hiding(config, population)
    module, init = model_of(config, given, population)
    reach = given.federation.ask if given.federation else None
    parts = Parts(config, population, _engine(config, module), init, reach)
    if given.model is not None or ":" in config.model.name:
        check_trains(config, parts.engine, initial_params(module), population.clients)
    return Assembled(
        config=config,
        streams=streams,
        population=population,
        engine=parts.engine,
        init=init,
        strategy=composed(parts),
        num_clusters=num_clusters(config, population),
        releases=releases(config),
        reference=Reference(population.non_members),
        retrial=retrial(parts),
        notes=(*of_data, *notes_of_model(given), *notes(config)),
        data_hash=data_hash(population),
        federation=given.federation,
    )


@dataclass(frozen=True, slots=True)
class Own:
    """What a client in a federation that is apart keeps on its own side.

    Attributes:
        seed: all that it draws follows from it.
        preference: None: what the settings draw for a client of this name.
        holdout: share of its examples that it never trains on; None: the settings'.
        classes: how many the federation has; 0: as many as its own examples show.
    """

    name: ClientName
    seed: int
    preference: Preference | None = None
    holdout: float | None = None
    classes: int = 0


def member_of(config: Config, own: Own, given: Given | None = None) -> Member:
    """Return one client's half of a federation, with nobody else's data.

    Args:
        config: the federation's settings.
        own: what only this client knows.
        given: its model and its examples, where they are not named in the settings. Where
            the settings name a data set, the client is the one of that name in the
            population that they simulate: for trying things out.

    Raises:
        CoveyError: some part does not fit.
    """
    given = given or Given()
    if own.holdout is not None:
        changed = config.population.model_copy(update={"holdout": own.holdout})
        config = config.model_copy(update={"population": changed})
    streams = Streams(config.seed if given.clients is None else own.seed)
    population, _ = population_and_notes(config, given.clients, streams)
    classes = own.classes or population.num_classes
    population = replace(population, num_classes=classes)
    client = next((c for c in population.clients if c.name == own.name), None)
    if client is None:
        raise DataError(
            f"The settings simulate {len(population.clients)} clients, and none is called "
            f"{own.name!r}. Name the client's own examples, or take a name like "
            f"{population.clients[0].name!r}."
        )
    module, _ = model_of(config, given, population)
    client = replace(client, preference=own.preference or client.preference)
    return Member(client, config, _engine(config, module), classes, own.seed)


def _population(
    config: Config, given: Given, streams: Streams
) -> tuple[Population, tuple[str, ...]]:
    """Return the clients with their data or, where they are apart, without."""
    federation = given.federation
    if (config.engine.name == "flower") != (federation is not None):
        raise ConfigError(
            "The clients of engine.name = 'flower', and of no other engine, are reached "
            "through a Flower server: make a deployment with `covey deploy init "
            "CONFIG.toml --out DIR` and start it as its README says, or set engine.name "
            "= 'auto' to simulate."
        )
    if federation is None:
        return population_and_notes(config, given.clients, streams)
    profile, names = federation.profile, federation.present()
    nothing = profile.nothing()
    return absent_population(names, nothing, streams, profile.classes), ()


def _check_hiding(config: Config, population: Population) -> None:
    k, clients = config.merge.min_anonymity, len(population.clients)
    if config.merge.name == "anonymity-sets" and k > clients:
        raise ConfigError(
            f"merge.min_anonymity (k) is how many clients hide together, so at most as "
            f"many as there are, {clients}, found {k}. Lower k."
        )


def _engine(config: Config, module: nn.Module) -> Engine:
    settings, task = config.engine, TASKS[config.model.task]
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
        return ReferenceEngine(module, task)
    if name == "vmap":
        device = "cuda" if torch.cuda.is_available() else "cpu"
        return VmapEngine(module, device, task=task)
    workers = settings.workers or num_cores()
    return ParallelEngine(module, workers, settings.precision, task)
