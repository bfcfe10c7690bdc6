"""From settings, or from a program, to clients: simulated, passed by the program, or remote."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable

from jaxtyping import Shaped
from pydantic import ConfigDict, TypeAdapter, ValidationError
from torch import Tensor, nn

from covey.algorithms.client_requests import ClientRequest, ClientResponse
from covey.algorithms.state import Cohort
from covey.base.components import Share, UnloadedComponent
from covey.base.errors import ConfigError, DataError, user_function
from covey.base.events import Event
from covey.base.names import ClientName, unknown
from covey.base.rng import Streams
from covey.data.clients import PopulationRequest
from covey.data.examples import Preference, ShiftRange
from covey.data.population import (
    Group,
    Population,
    PopulationSpec,
    handle_of,
    normalised_population,
    read_preferences,
    standardised_population,
    weight_from_threshold,
    with_client_columns,
)
from covey.data.source import DataProfile, OwnSource, data_folder
from covey.engine.recipe import TASKS
from covey.models.build import NETWORKS
from covey.models.feature_store import FeatureStore
from covey.settings.load import Config
from covey.settings.rules import of_data, one_cluster_per_group, refusals

Counted = Callable[[Collection[ClientName]], Collection[ClientName]]
"""Which of these clients still take part."""


@dataclass(frozen=True, slots=True)
class ClientReports:
    """What came of asking, beside the answers.

    Attributes:
        events: who did not answer, who was refused and why, what clients report.
        leaving: clients that ask to be forgotten.
    """

    events: tuple[Event, ...] = ()
    leaving: tuple[ClientName, ...] = ()


@runtime_checkable
class ClientBackend(Protocol):
    """A way to remote clients."""

    @property
    def profile(self) -> DataProfile:
        """What their data look like."""
        ...

    def available_clients(self) -> Collection[ClientName]:
        """Return the clients that are reachable now."""
        ...

    def gather(
        self, fewest: int, counted: Counted, known: Collection[ClientName], /
    ) -> Collection[ClientName]:
        """Return the clients that are reachable, once so many of them are counted.

        Raises:
            UnfinishedError: too few of the `known` ones, or of others, came in time.
        """
        ...

    def send(self, request: ClientRequest, cohort: Cohort) -> tuple[ClientResponse, ...]:
        """Return the answers that came in time and in order, in the cohort's order."""
        ...

    def reports(self) -> ClientReports:
        """Return what has happened since the last call."""
        ...

    def keys(self) -> Mapping[ClientName, str] | None:
        """Return the fingerprint of each client's key, to which its name stays bound, if known."""
        ...


Shares = Mapping[ClientName, float]
"""A number in [0, 1] per client."""


def with_preferences(
    config: Config,
    thresholds: Shares | None,
    risk_weights: Shares | None,
    otherwise: Callable[[ClientName], Preference],
) -> Config:
    """Return the settings with what these clients accept, under their handles.

    No name gets into the settings: a run that is carried on has its clients' handles.

    Args:
        config: the settings.
        thresholds: tau by name. A missing weight follows from it, where the
            settings let weights follow.
        risk_weights: beta by name.
        otherwise: what a client accepts of which nothing is said.

    Raises:
        ConfigError: naming the client whose number lies outside [0, 1].
    """
    taus, betas = (_shares("thresholds", thresholds), _shares("risk_weights", risk_weights))
    if not taus and not betas:
        return config
    if config.secrets.source == "os":
        raise ConfigError(
            "thresholds and risk_weights need handles that follow from the seed, found "
            "secrets.source = 'os', which hides who took part: write them into a file and set "
            "population.preferences."
        )
    streams, fixed = Streams(config.seed), config.population.risk_weight

    def entry(name: ClientName) -> tuple[str, float, float]:
        usual = otherwise(name)
        tau = taus.get(name, usual.risk_threshold)
        follows = name in taus and fixed == "from-threshold"
        beta = weight_from_threshold(tau) if follows else usual.risk_weight
        return handle_of(name, streams), tau, betas.get(name, beta)

    entries = tuple(entry(name) for name in sorted({*taus, *betas}))
    settings = config.model_dump()
    settings["population"]["preferences_by_handle"] = entries
    return Config.of(settings)


_of_clients = TypeAdapter(dict[ClientName, Share], config=ConfigDict(strict=True)).validate_python


def _shares(what: str, shares: Any) -> dict[ClientName, float]:  # noqa: ANN401 - anything
    if isinstance(shares, Mapping):  # numbers of numpy or torch become Python's
        pairs = cast("Mapping[Any, Any]", shares).items()
        shares = {str(k): v.item() if hasattr(v, "item") else v for k, v in pairs}
    try:
        return _of_clients({} if shares is None else shares)
    except ValidationError as error:
        problem = error.errors()[0]
        names_of = "".join(f" for {name}" for name in problem["loc"])
        raise ConfigError(
            f"{what} must have numbers in [0, 1], found {problem['input']!r}{names_of}: correct it."
        ) from None


def check_preference_names(named: Collection[ClientName], known: Collection[ClientName]) -> None:
    """Refuse names that no client has.

    Raises:
        ConfigError: naming the first of them.
    """
    _check_names("thresholds and risk_weights", {str(name) for name in named}, known)


def _check_names(what: str, named: Collection[ClientName], known: Collection[ClientName]) -> None:
    for name in sorted(set(named).difference(known)):
        raise ConfigError(unknown(f"Who is in {what}", name, sorted(known)))


@dataclass(frozen=True, slots=True, eq=False)
class Overrides:
    """What a program passes by hand instead of naming it in the settings.

    Attributes:
        model: builds a fresh module, or is one: then all start with its weights.
        clients: their data, as `covey.data.clients.clients_of` takes them.
        thresholds: what clients accept, by name (`with_preferences`).
        risk_weights: their weights on the risk, by name.
        parts: settings in which a program's own parts stand; None: it passed none again.
        features: where features of a user's network are kept; None: in memory alone.
    """

    model: Callable[[], nn.Module] | nn.Module | None = None
    clients: object = None
    client_backend: ClientBackend | None = None
    thresholds: Shares | None = None
    risk_weights: Shares | None = None
    parts: Config | None = None
    features: FeatureStore | None = None

    @property
    def named(self) -> frozenset[ClientName]:
        """The clients of which the program says what they want."""
        preferences = (self.thresholds, self.risk_weights)
        return frozenset(str(name) for preference in preferences for name in preference or ())


def population_and_notes(
    config: Config, passed: object, streams: Streams
) -> tuple[Population, tuple[str, ...]]:
    """Return the population, and what a reader must know of its data.

    Args:
        config: the settings.
        passed: what a program passes by hand as its clients; None: nothing.
        streams: of the run.

    Raises:
        CoveyError: the examples cannot be had; errors of a user's own source name it.
    """
    if passed is None and isinstance(config.data, UnloadedComponent):
        config.data.refuse()
    source = config.data if passed is None else OwnSource(function=lambda: passed)
    request = _request_of(config, streams)
    rules = (partial(of_data, source=source),)
    if refused := [refusal.message for refusal in refusals(config, rules)]:
        raise ConfigError(" ".join(refused))
    own, make = config.data.is_own, source.population
    if own:
        make = user_function(f"data source {config.data.name}", make, DataError)
    try:
        population, notes = make(request)
    except DataError as error:
        if not own:
            raise
        raise DataError(f"data.name = {config.data.name!r}: {error}") from error
    if config.data.normalise == "image":
        population = normalised_population(population)
    if config.data.standardise == "client":
        population = standardised_population(population)
    if config.data.client_columns:
        population = with_client_columns(population)
    for refusal in one_cluster_per_group(config, len(population.groups)):
        raise ConfigError(refusal.message)
    if config.population.preferences and not config.engine.is_remote:  # where more may come
        named = read_preferences(Path(config.population.preferences))
        _check_names(
            "population.preferences", named, [client.name for client in population.clients]
        )
    return _without(population, config.population.exclude), notes


def _request_of(config: Config, streams: Streams) -> PopulationRequest:
    """Return what a data source is to make."""
    task, settings = TASKS[config.model.task], config.population

    def outputs(labels: Shaped[Tensor, "examples *label"], holder: str) -> int:
        try:
            return task.outputs(labels)
        except DataError as error:
            raise DataError(f"{holder}: {error}") from None

    return PopulationRequest(
        folder=data_folder(config.data.dir),
        label=config.data.label,
        spec=PopulationSpec(
            clients=settings.clients,
            groups=_group_specs(config),
            shift_per=settings.shift_per,
            holdout=settings.holdout,
            audit_examples=settings.audit_examples,
            pool=_pool_of(config),
            non_members=config.audit.non_members,
            images=settings.images,
            partition=settings.partition,
        ),
        streams=streams,
        preference=preference_of(config, streams),
        outputs=outputs,
        keeps_ids=config.model.name not in NETWORKS,
    )


def _pool_of(config: Config) -> int:
    """Return the pool of a `PopulationSpec`: of this size, 0 for the rest, or -1 for none."""
    size = config.population.pool
    return -1 if not config.risk.needs_pool else 0 if size == "rest" else size


def _without(population: Population, names: tuple[ClientName, ...]) -> Population:
    _check_names("population.exclude", names, [client.name for client in population.clients])
    clients = tuple(c for c in population.clients if c.name not in names)
    if not clients:
        raise ConfigError("population.exclude must leave a client, found none: exclude fewer.")
    return replace(population, clients=clients)


def _group_specs(config: Config) -> tuple[Group, ...]:
    """Return the groups; of two unequal ones the smaller is called the minority."""
    settings = config.population
    shift = partial(ShiftRange, settings.shift)
    if not settings.groups:
        share, size = settings.minority_share, settings.examples_per_client
        return (
            Group("minority", share, shift(*settings.minority), size),
            Group("majority", 1 - share, shift(*settings.majority), size),
        )
    shares = [group.share for group in settings.groups]
    names = [f"group-{index}" for index in range(len(shares))]
    if len(shares) == 2 and shares[0] != shares[1]:
        names = ["minority", "majority"]
        if shares[0] > shares[1]:
            names.reverse()
    return tuple(
        Group(name, group.share, shift(*group.shift), group.examples_per_client)
        for name, group in zip(names, settings.groups, strict=True)
    )


def preference_of(config: Config, streams: Streams) -> Callable[[ClientName], Preference]:
    """Return what each client accepts: its own entry, or else a draw."""
    path = config.population.preferences
    preferences = read_preferences(Path(path)) if path else {}
    by_handle = {
        handle: Preference(risk_weight=beta, risk_threshold=tau)
        for handle, tau, beta in config.population.preferences_by_handle
    }
    low, high = config.population.thresholds
    fixed, limits = config.population.risk_weight, config.population.epsilon_limits

    def preference(name: ClientName) -> Preference:
        if not limits:
            return accepted(name)
        drawn = streams.at("budget", name).generator().integers(len(limits))
        return replace(accepted(name), epsilon_limit=limits[drawn])

    def accepted(name: ClientName) -> Preference:
        if by_handle and (known := by_handle.get(handle_of(name, streams))):
            return known
        if name in preferences:
            return preferences[name]
        tau = float(streams.at("threshold", name).generator().uniform(low, high))
        beta = weight_from_threshold(tau) if fixed == "from-threshold" else fixed
        return Preference(risk_weight=beta, risk_threshold=tau)

    return preference
