"""From settings to everything that a run is made of."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from covey.algorithms.clients import Clients
from covey.algorithms.run_algorithm import RunAlgorithm
from covey.algorithms.state import Cohort
from covey.base.errors import ConfigError
from covey.base.events import ComponentsUsed
from covey.base.names import ClientName, Handle, Params
from covey.base.rng import Streams
from covey.data.examples import Client
from covey.data.population import DataHashes, Population, absent_population
from covey.membership.references import RetrainRecipe
from covey.membership.truth import NonMembers
from covey.models.build import NETWORKS, initial_params
from covey.settings.aggregation import components_used
from covey.settings.algorithm import algorithm_of, clients_of, federation_of, notes, round_steps
from covey.settings.clients import (
    Overrides,
    check_preference_names,
    population_and_notes,
    preference_of,
    with_preferences,
)
from covey.settings.load import Config
from covey.settings.model import check_trains, engine_of, model_of, notes_of_model
from covey.settings.risk import RunParts, retrain_recipe
from covey.settings.schema import check_enough


@dataclass(frozen=True, eq=False, kw_only=True)
class BuiltRun(RunParts):
    """Everything that a run is made of.

    Attributes:
        num_clusters: models at its start, whoever leaves or comes.
        notes: what a reader of the results must know: oracles in use, missing files.
        data_hashes: makes the next `data_hash` of the same run without some client.
    """

    streams: Streams
    num_clusters: int
    notes: tuple[str, ...] = ()
    data_hashes: DataHashes = field(default_factory=DataHashes)

    @cached_property
    def algorithm(self) -> RunAlgorithm:
        """Its algorithm, with its red team."""
        return algorithm_of(self)

    @cached_property
    def no_clients(self) -> Clients:
        """How clients get requests in the first round, with none in its cohort yet."""
        return clients_of(self, self.algorithm.setup)

    @cached_property
    def retrain_recipe(self) -> RetrainRecipe:
        """How an auditor plays its recipe again."""
        return retrain_recipe(self)

    @cached_property
    def data_hash(self) -> str | None:
        """Over every client's examples; None: they are not at hand."""
        return self.data_hashes.of(self.population)

    @cached_property
    def components_used(self) -> tuple[ComponentsUsed, ...]:
        """What the ledger records of components; one event, or none."""
        return components_used(self.config, self.module) if self.module else ()

    @property
    def reference(self) -> NonMembers:
        """Examples that no client holds, for the true audit."""
        return NonMembers(self.population.non_members)

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
        return replace(self, population=replace(self.population, clients=clients))

    def clients(
        self,
        cohort: Cohort,
        round_index: int = 0,
        *,
        recorded: Mapping[int, Mapping[Handle, int]] | None = None,
        stored: Mapping[Handle, Params] | None = None,
    ) -> Clients:
        """Return these clients, as they train in a round.

        Args:
            cohort: who they are.
            round_index: of the round. The others are of rounds that are played again:
            recorded: by round, the clusters that clients took then, and take again.
            stored: the updates that they calibrate in this round; None: they train.
        """
        first, now = (self.recipe(t) for t in (0, round_index))
        clients = self.no_clients.among(cohort)
        if now != first or stored is not None:
            federation = federation_of(self, now, stored)
            clients = replace(clients, federation=federation, steps=round_steps(self, now))
        return replace(clients, recorded=recorded or {})


def build_run(config: Config, overrides: Overrides | None = None) -> BuiltRun:
    """Read the data, build the model, and put the algorithm into its run.

    Raises:
        CoveyError: some part does not fit; nothing has been written.
    """
    overrides = overrides or Overrides()
    streams = Streams(config.seed)
    usual = preference_of(config, streams)
    config = with_preferences(config, overrides.thresholds, overrides.risk_weights, usual)
    population, of_data = _population(config, overrides, streams)
    check_preference_names(overrides.named, [client.name for client in population.clients])
    simulated = overrides.client_backend is None
    if simulated:  # where more may come, too few wait
        check_enough(config, len(population.clients))
    module, init = model_of(config, overrides, population)
    engine, records = engine_of(config, module, population)
    own = config.train.loss.is_own or config.train.objective.is_own
    if own or overrides.model is not None or config.model.name not in NETWORKS:
        check_trains(config, engine, initial_params(module), population)
    run = BuiltRun(
        config=config,
        population=population,
        engine=engine,
        init=init,
        module=module,
        client_backend=overrides.client_backend,
        records=records,
        streams=streams,
        num_clusters=config.method.num_models or len(population.clients),
        notes=(*of_data, *notes_of_model(overrides), *notes(config)),
    )
    # what does not fit is refused here, and not in a round
    _ = run.no_clients, run.retrain_recipe, run.components_used
    return replace(run, notes=(*run.notes, *_without_exposure(run)))


def _without_exposure(run: BuiltRun) -> Iterator[str]:
    """Yield a note about the clients whose data add nothing to the models, if there are any."""
    silent = sum(exposure == 0 for exposure in run.exposures.values())
    if silent:
        yield (
            f"{silent} of {len(run.population.clients)} clients accept no risk above 0.5, or have "
            f"no budget: they take part, and add nothing to the models."
        )


def _population(
    config: Config, overrides: Overrides, streams: Streams
) -> tuple[Population, tuple[str, ...]]:
    """Return the clients with their data or, where they are remote, without."""
    backend = overrides.client_backend
    if config.engine.is_remote != (backend is not None):
        raise ConfigError(
            f"engine.name must be 'flower' for clients on machines of their own, and those alone, "
            f"found {config.engine.name!r}: make a deployment with `covey deploy init CONFIG.toml "
            f"--out DIR` and start it as its README says, or set 'auto' to simulate."
        )
    if backend is None:
        return population_and_notes(config, overrides.clients, streams)
    profile, names = backend.profile, backend.available_clients()
    nothing = profile.empty_examples()
    return absent_population(names, nothing, streams, profile.classes), ()
