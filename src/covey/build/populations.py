"""From settings to a population: simulated out of a data set, or users' own data."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from jaxtyping import Shaped
from torch import Tensor

from covey.build.owners import population_from, source_of
from covey.build.settled import estimator_needs
from covey.components import Capability
from covey.components.slots import component_of
from covey.config import Config, claims_of, refuse_conflicts
from covey.data import (
    DataSource,
    GroupSpec,
    Partition,
    Population,
    PopulationRequest,
    PopulationSpec,
    Preference,
    Shift,
    ShiftRange,
    data_folder,
    normalised_population,
    read_preferences,
    weight_from_threshold,
)
from covey.data.population import handle_of
from covey.engine import TASKS
from covey.errors import ConfigError, DataError
from covey.models import NETWORKS
from covey.rng import Streams
from covey.types import ClientName

__all__ = ["population_and_notes", "preference_of", "request_of"]


def population_and_notes(
    config: Config, given: object, streams: Streams
) -> tuple[Population, tuple[str, ...]]:
    """Return the population, and what a reader must know of its data.

    `given` is what a program passes by hand as its clients; None: nothing.
    """
    source = source_of(config, given)
    request = request_of(config, streams)
    _check_fits(config, source, request.spec)
    population, notes = population_from(source, config, request)
    if config.data.normalise == "image":
        population = normalised_population(population)
    _check_groups(config, population)
    return _without(population, config.population.exclude), notes


def request_of(config: Config, streams: Streams) -> PopulationRequest:
    """Return what a data source is asked for."""
    task = TASKS[config.model.task]

    def outputs(labels: Shaped[Tensor, "examples *label"], whose: str) -> int:
        try:
            return task.outputs(labels)
        except DataError as error:
            raise DataError(f"{whose}: {error}") from None

    return PopulationRequest(
        folder=data_folder(config.data.dir),
        label=config.data.label,
        spec=_population_spec(config),
        streams=streams,
        preference=preference_of(config, streams),
        outputs=outputs,
        keeps_ids=config.model.name not in NETWORKS,
    )


def _check_fits(config: Config, source: DataSource, spec: PopulationSpec) -> None:
    """Refuse what these data, or these clients, do not have."""
    dealt = {
        "population.shift": spec.groups[0].shift.shift,
        "population.partition": spec.partition,
    }
    claims = [*source.claims(f"data.name = {config.data.name!r}")]
    for key, each in dealt.items() if source.simulates else ():
        name = getattr(config.population, key.partition(".")[2])
        claims += each.claims(f"{key} = {name!r}")
    refuse_conflicts([*claims, *claims_of(config, ("data.name", *dealt))])


def _check_groups(config: Config, population: Population) -> None:
    """Refuse an oracle that does not know every cluster's group."""
    groups, method = len(population.groups), config.method
    if method.initialisation == "groups" and groups != method.num_clusters:
        raise ConfigError(
            f"method.initialisation = 'groups' needs one cluster per group, found "
            f"num_clusters = {method.num_clusters} for {groups} groups. Set "
            f"method.num_clusters = {groups}, or another initialisation."
        )


def _without(population: Population, names: tuple[ClientName, ...]) -> Population:
    known = {client.name for client in population.clients}
    if unknown := set(names) - known:
        raise ConfigError(
            f"population.exclude names {sorted(unknown)[0]!r}, and there is no such "
            f"client. The first is {min(known)!r}, the last {max(known)!r}."
        )
    kept = tuple(c for c in population.clients if c.name not in names)
    if not kept:
        raise ConfigError("population.exclude leaves no client. Exclude fewer.")
    return replace(population, clients=kept)


def _population_spec(config: Config) -> PopulationSpec:
    settings = config.population
    needs_pool = estimator_needs(config, Capability.SERVER_DATA)
    return PopulationSpec(
        clients=settings.clients,
        groups=_group_specs(config),
        shift_per=settings.shift_per,
        holdout=settings.holdout,
        audit_examples=settings.audit_examples,
        pool=config.redteam.pool if needs_pool else -1,
        non_members=config.audit.non_members,
        images=settings.images,
        partition=component_of(settings, "partition", Partition),
    )


def _group_specs(config: Config) -> tuple[GroupSpec, ...]:
    """Return the groups; of two unequal ones the smaller is called the minority."""
    settings = config.population
    shift = partial(ShiftRange, component_of(settings, "shift", Shift))
    if not settings.groups:
        share, each = settings.minority_share, settings.examples_per_client
        return (
            GroupSpec("minority", share, shift(*settings.minority), each),
            GroupSpec("majority", 1 - share, shift(*settings.majority), each),
        )
    shares = [group.share for group in settings.groups]
    names = [f"group-{index}" for index in range(len(shares))]
    if len(shares) == 2 and shares[0] != shares[1]:
        names = ["minority", "majority"]
        if shares[0] > shares[1]:
            names.reverse()
    return tuple(
        GroupSpec(name, group.share, shift(*group.shift), group.examples_per_client)
        for name, group in zip(names, settings.groups, strict=True)
    )


def preference_of(
    config: Config, streams: Streams
) -> Callable[[ClientName], Preference]:
    """Return what each client accepts: its own entry, or else a draw."""
    path = config.population.preferences
    stated = read_preferences(Path(path)) if path else {}
    by_handle = {
        handle: Preference(risk_weight=beta, risk_threshold=tau)
        for handle, tau, beta in config.population.preferences_by_handle
    }
    low, high = config.population.thresholds
    fixed = config.method.risk_weight

    def preference(name: ClientName) -> Preference:
        if by_handle and (known := by_handle.get(handle_of(name, streams))):
            return known
        if name in stated:
            return stated[name]
        tau = float(streams.at("threshold", name).generator().uniform(low, high))
        beta = weight_from_threshold(tau) if fixed == "from-threshold" else fixed
        return Preference(risk_weight=beta, risk_threshold=tau)

    return preference
