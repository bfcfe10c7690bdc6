"""From settings to a population: simulated out of a data set, or users' own data."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from covey.build.owners import notes_of, outputs_of, user_clients
from covey.config import Config
from covey.config.sections import DataConfig
from covey.data import (
    Client,
    GroupSpec,
    MixtureSpec,
    Population,
    PopulationSpec,
    Preference,
    Shift,
    Source,
    build_population,
    data_folder,
    mixture_population,
    population_of,
    read_preferences,
    read_source,
    weight_from_threshold,
)
from covey.data.population import handle_of
from covey.engine import TASKS
from covey.errors import ConfigError
from covey.rng import Streams
from covey.types import ClientName

__all__ = ["data_hash", "mixture_spec", "population_and_notes", "preference_of"]


def population_and_notes(
    config: Config, given: object, streams: Streams
) -> tuple[Population, tuple[str, ...]]:
    """Return the population, and what a reader must know of its data.

    `given` is what a program passes by hand as its clients; None: nothing.
    """
    settings, preference = config.population, preference_of(config, streams)
    task, own = TASKS[config.model.task], user_clients(config, given)
    if own is None and config.data.name == "linear-mixture":
        spec = mixture_spec(config.data)
        population = mixture_population(
            spec, _population_spec(config), streams, preference
        )
        return _without(population, settings.exclude), ()
    if own is None:
        folder = data_folder(config.data.dir)
        source = read_source(config.data.name, folder)
        _refuse_several_labels(config, source)
        spec = _population_spec(config)
        task.outputs(source.train.labels)  # refuses those of another task
        population = build_population(source, spec, streams, preference)
        return _without(population, settings.exclude), source.notes
    _refuse_simulation_only(config)
    classes = max(outputs_of(task, own))
    population = population_of(
        own, settings.holdout, streams, preference, num_classes=classes
    )
    return _without(population, settings.exclude), notes_of(own)


def _refuse_simulation_only(config: Config) -> None:
    """Refuse what needs groups, transforms or a pool, which own data do not have."""
    for key, value, wrong in (
        ("method.initialisation", config.method.initialisation, "groups"),
        ("redteam.source", config.redteam.source, "shadow"),
    ):
        if value == wrong:
            raise ConfigError(
                f"{key} = {wrong!r} needs a simulated population, and the clients here "
                f"bring their own data. Choose another value."
            )


def _refuse_several_labels(config: Config, source: Source) -> None:
    labels = source.train.labels
    if config.model.task == "multiclass" and labels.ndim > 1:
        raise ConfigError(
            f"model.task = 'multiclass' is for one class per image, and an image of "
            f"{source.name} has {labels.shape[1]} labels. Set model.task = 'multilabel'."
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
    return PopulationSpec(
        clients=settings.clients,
        groups=_group_specs(config),
        shift_per=settings.shift_per,
        holdout=settings.holdout,
        audit_examples=settings.audit_examples,
        pool=config.redteam.pool if config.redteam.source == "shadow" else -1,
        non_members=config.audit.non_members,
        images=settings.images,
        partition=settings.partition,
        dirichlet_alpha=settings.dirichlet_alpha,
    )


def mixture_spec(settings: DataConfig) -> MixtureSpec:
    """Return the mixture that the settings describe."""
    return MixtureSpec(
        settings.dimension, settings.noise, settings.separation, settings.condition
    )


def _group_specs(config: Config) -> tuple[GroupSpec, ...]:
    """Return the groups; of two unequal ones the smaller is called the minority."""
    settings = config.population
    shift = partial(Shift, settings.shift)
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


def data_hash(population: Population) -> str:
    """Return SHA-256 over all clients' handles and examples, as hex.

    Empty where the clients keep their examples to themselves.
    """
    if not any(len(client.train) for client in population.clients):
        return ""
    digest = hashlib.sha256()
    for client in population.clients:
        digest.update(_client_bytes(client))
    return digest.hexdigest()


def _client_bytes(client: Client) -> bytes:
    parts = [
        tensor.numpy().tobytes()
        for examples in (client.train, client.holdout)
        for tensor in (examples.inputs, examples.labels)
    ]
    return client.handle.encode() + b"".join(parts)
