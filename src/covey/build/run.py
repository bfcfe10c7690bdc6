"""From settings to everything that a run is made of."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

from torch import nn

from covey.algorithms import (
    Clients,
    Cohort,
    Strategy,
)
from covey.build.aggregators import anonymity_of, head_noise_of, sum_noise_of
from covey.build.algorithms import (
    NO_REPLAY,
    ReplayOptions,
    clients_of,
    compose,
    notes,
    num_clusters,
)
from covey.build.attested import with_organisations
from covey.build.client_backend import ClientBackend
from covey.build.client_runtime import ClientRuntime
from covey.build.data_hashes import DataHashes
from covey.build.given import Overrides, model_of, notes_of_model
from covey.build.local_training import recipe_of
from covey.build.parts import Components
from covey.build.populations import population_and_notes, preference_of
from covey.build.recorded import components_used
from covey.build.risk import retrain_recipe
from covey.build.stated import (
    check_preference_names,
    with_preferences,
)
from covey.build.trial import check_trains
from covey.components.slots import component_of
from covey.config import Config, is_remote
from covey.data import (
    Client,
    Population,
    Preference,
    absent_population,
)
from covey.engine import TASKS, Engine, EngineFactory
from covey.engine.bounded_records import BoundedRecords
from covey.engine.fixed_features import (
    FeatureCache,
    FixedFeatureEngine,
    LocalRecords,
    has_fixed_features,
)
from covey.errors import ConfigError, DataError
from covey.events import ComponentsUsed
from covey.membership import Reference, RetrainRecipe
from covey.models import NETWORKS, initial_params
from covey.rng import Streams
from covey.types import ClientName, Params

__all__ = ["BuiltRun", "ClientSecrets", "Overrides", "build_run", "client_runtime_of"]


@dataclass(frozen=True, slots=True, eq=False)
class BuiltRun:
    """Everything that a run is made of.

    Attributes:
        init: draws a fresh model.
        notes: what a reader of the results must know: oracles in use, missing files.
        components_used: what the ledger is told of components; one fact, or none.
        nobody: how clients are asked in a round, with none in its cohort yet.
        data_hash: over every client's examples; None: they are not at hand.
        client_backend: where the clients are remote, the way to them.
        replay: how rounds that were played before are played again.
        module: the architecture; its weights are nobody's.
        records: clients' records as fixed features, where the model has them; where they
            are remote, what is known of these features.
        data_hashes: makes the next `data_hash` of the same run without some client.
    """

    config: Config
    streams: Streams
    population: Population
    engine: Engine
    init: Callable[[Streams], Params]
    strategy: Strategy
    nobody: Clients
    num_clusters: int
    reference: Reference
    retrain_recipe: RetrainRecipe
    notes: tuple[str, ...]
    data_hash: str | None
    client_backend: ClientBackend | None = None
    components_used: tuple[ComponentsUsed, ...] = ()
    replay: ReplayOptions = NO_REPLAY
    records: LocalRecords | None = None
    module: nn.Module | None = None
    data_hashes: DataHashes = field(default_factory=DataHashes)

    def with_clients_named(self, names: Collection[ClientName]) -> "BuiltRun":
        """Return the same run, in which these clients take part as well."""
        known = {client.name for client in self.population.clients}
        if known.issuperset(names):
            return self
        nothing, classes = self.population.pool, self.population.num_classes
        new = absent_population(known.union(names), nothing, self.streams, classes)
        present = {client.name: client for client in self.population.clients}
        return self.with_clients(tuple(present.get(c.name, c) for c in new.clients))

    def with_clients(self, clients: tuple[Client, ...]) -> "BuiltRun":
        """Return the same run with these clients instead of its own."""
        population = replace(self.population, clients=clients)
        components = replace(self._components(), population=population)
        return replace(
            self,
            population=population,
            strategy=compose(components),
            nobody=clients_of(components),
            num_clusters=num_clusters(self.config, population),
            retrain_recipe=retrain_recipe(components),
            data_hash=self.data_hashes.of(population),
            replay=NO_REPLAY,
        )

    def for_replay(self, options: ReplayOptions) -> "BuiltRun":
        """Return the same run for rounds that were played before."""
        nobody = clients_of(self._components(), options)
        return replace(self, nobody=nobody, replay=options)

    def clients(self, cohort: Cohort, round_index: int = 0) -> Clients:
        """Return these clients, as they train in a round."""
        first, now = (
            recipe_of(self.config).at(t, self.config.rounds) for t in (0, round_index)
        )
        if now == first:
            return self.nobody.among(cohort)
        changed = clients_of(self._components(), self.replay, round_index)
        return changed.among(cohort)

    def _components(self) -> Components:
        send = self.client_backend.ask if self.client_backend else None
        of_clients = self.config, self.population
        return Components(*of_clients, self.engine, self.init, send, self.records)


def build_run(config: Config, overrides: Overrides | None = None) -> BuiltRun:
    """Read the data, build the model, and compose the strategy.

    Raises:
        CoveyError: some part does not fit; nothing has been written.
    """
    overrides = overrides or Overrides()
    streams = Streams(config.seed)
    usual = preference_of(config, streams)
    config = with_preferences(
        config, overrides.thresholds, overrides.risk_weights, usual
    )
    population, of_data = _population(config, overrides, streams)
    check_preference_names(
        overrides.named, [client.name for client in population.clients]
    )
    simulated = overrides.client_backend is None
    population = with_organisations(config, population, complete=simulated)
    if simulated:  # where more may come, too few wait
        _check_min_anonymity(config, population)
    module, init = model_of(config, overrides, population)
    send = overrides.client_backend.ask if overrides.client_backend else None
    engine, records = _engine(config, module), None
    if has_fixed_features(module):
        engine, records = _on_fixed_features(config, module, engine, population)
    components = Components(config, population, engine, init, send, records)
    own = (config.train.loss, config.train.objective)
    own_model = overrides.model is not None or config.model.name not in NETWORKS
    if own_model or any(":" in name for name in own):
        check_trains(
            config, components.engine, initial_params(module), population.clients
        )
    data_hashes = DataHashes()
    return BuiltRun(
        config=config,
        streams=streams,
        population=population,
        engine=components.engine,
        init=init,
        strategy=compose(components),
        nobody=clients_of(components),
        num_clusters=num_clusters(config, population),
        reference=Reference(population.non_members),
        retrain_recipe=retrain_recipe(components),
        notes=(*of_data, *notes_of_model(overrides), *notes(config)),
        data_hash=data_hashes.of(population),
        data_hashes=data_hashes,
        client_backend=overrides.client_backend,
        components_used=components_used(config, module),
        records=records,
        module=module,
    )


@dataclass(frozen=True, slots=True)
class ClientSecrets:
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


def client_runtime_of(
    config: Config, secrets: ClientSecrets, overrides: Overrides | None = None
) -> ClientRuntime:
    """Return one client's half of a federation, with nobody else's data.

    Args:
        config: the federation's settings.
        secrets: what only this client knows.
        overrides: its model and its examples, where they are not named in the settings.
            Where the settings name a data set, the client is the one of that name in the
            population that they simulate: for trying things out.

    Raises:
        CoveyError: some part does not fit.
    """
    overrides = overrides or Overrides()
    if secrets.holdout is not None:
        changed = config.population.model_copy(update={"holdout": secrets.holdout})
        config = config.model_copy(update={"population": changed})
    streams = Streams(config.seed if overrides.clients is None else secrets.seed)
    population, _ = population_and_notes(config, overrides.clients, streams)
    classes = secrets.classes or population.num_classes
    population = replace(population, num_classes=classes)
    client = next((c for c in population.clients if c.name == secrets.name), None)
    if client is None:
        raise DataError(
            f"The settings simulate {len(population.clients)} clients, and none is called "
            f"{secrets.name!r}. Name the client's own examples, or take a name like "
            f"{population.clients[0].name!r}."
        )
    module, _ = model_of(config, overrides, population)
    client = replace(client, preference=secrets.preference or client.preference)
    engine, records = _engine(config, module), None
    if has_fixed_features(module):
        engine, records = _on_fixed_features(config, module, engine, population)
    return ClientRuntime(client, config, engine, classes, secrets.seed, records)


def _population(
    config: Config, overrides: Overrides, streams: Streams
) -> tuple[Population, tuple[str, ...]]:
    """Return the clients with their data or, where they are remote, without."""
    backend = overrides.client_backend
    if is_remote(config) != (backend is not None):
        raise ConfigError(
            f"Clients on machines of their own, and no others, are reached through a "
            f"Flower server, found engine.name = {config.engine.name!r}: make a deployment "
            f"with `covey deploy init CONFIG.toml --out DIR` and start it as its README "
            f"says, or set engine.name = 'auto' to simulate."
        )
    if backend is None:
        return population_and_notes(config, overrides.clients, streams)
    profile, names = backend.profile, backend.available_clients()
    nothing = profile.empty_examples()
    return absent_population(names, nothing, streams, profile.classes), ()


def _check_min_anonymity(config: Config, population: Population) -> None:
    terms, clients = anonymity_of(config), len(population.clients)
    k = terms.min_anonymity if terms else 0
    if k > clients:
        raise ConfigError(
            f"merge.min_anonymity (k) is how many clients hide together, so at most as "
            f"many as there are, {clients}, found {k}. Lower k."
        )


def _on_fixed_features(
    config: Config, module: nn.Module, engine: Engine, population: Population
) -> tuple[Engine, LocalRecords]:
    """Return how heads are scored and solved, both on features that are computed once."""
    cache, task = FeatureCache(module), TASKS[config.model.task]
    scale = float(getattr(module, "scale", 1.0))
    scoring = FixedFeatureEngine(engine, cache, scale, task)
    of_records = (cache, scale, task, population.num_classes)
    noise = sum_noise_of(config) or head_noise_of(config, population.num_classes)
    records = BoundedRecords(*of_records, noise) if noise else LocalRecords(*of_records)
    return scoring, records


def _engine(config: Config, module: nn.Module) -> Engine:
    made: EngineFactory = component_of(config.engine, "name", EngineFactory)
    needs = recipe_of(config).needs
    return made.build(module, TASKS[config.model.task], needs=needs)
