"""From settings to what makes the next models out of updates, and what it keeps apart.

Whether what a cluster's clients send can reach another cluster's model.

A user's own code is believed where its own class says so. What it inherits says nothing:
it may have overridden what made it true.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

from torch import nn

from covey.aggregation.base import (
    Aggregation,
    Aggregator,
    AnonymityTerms,
    ClusterwiseAggregation,
    FederationInfo,
    with_stored_updates,
)
from covey.aggregation.mean import Clipping, arrived_mean, noised_mean
from covey.aggregation.server import ServerOptimizer, ServerStep
from covey.algorithms.algorithm import Algorithm
from covey.base.errors import ConfigError
from covey.base.events import ComponentsUsed
from covey.base.names import Handle
from covey.build.own_algorithm import user_aggregator, user_server_step
from covey.build.training import algorithm_of
from covey.components.registry import Capability, Component, find, is_built_in, source_hash
from covey.components.slots import ComponentSection, component_of, options_key
from covey.config.learning import ModelConfig
from covey.config.rules import is_remote
from covey.config.settings import Config
from covey.heads.perturbed import HeadNoise
from covey.heads.state import SumNoise
from covey.models.features import FrozenFeatures
from covey.unlearning.plan import SumKind


def aggregator_of(
    config: Config, clients: int, organisations: Mapping[Handle, str] | None = None
) -> Aggregator:
    """Return the aggregation of a federation of so many clients.

    Args:
        config: the settings.
        clients: how many there are.
        organisations: as far as they are attested; None: nobody asks, in a rehearsal.
    """
    if config.privacy.client_noise > 0:
        merge = noised_mean(_clipping(config, clients))
    else:
        merge = _aggregation(config, clients, organisations)
    return with_stored_updates(merge) if config.unlearning.store_updates else merge


def masked_aggregator_of(config: Config) -> Aggregator:
    """Return the aggregation of updates that are sent under masks.

    Raises:
        ConfigError: there is none, or updates are to be clipped and hidden by noise.
    """
    found = component_of(config.merge, "name", Aggregation)
    own = found if isinstance(found, Aggregation) else None
    masked = own and own.masked(config.privacy.min_cohort)
    if masked is None or config.privacy.client_noise > 0:
        raise ConfigError(
            f"Under privacy.secure_sums updates are averaged, and nobody clips them or "
            f"adds noise, found merge.name = {config.merge.name!r} and client_noise = "
            f"{config.privacy.client_noise}. Take the mean without noise, or set "
            f"secure_sums = false."
        )
    return arrived_mean(config.privacy.min_cohort) if is_remote(config) else masked


def server_step_of(config: Config) -> ServerStep:
    """Return what the server makes of the aggregated models, and keeps for it."""
    name = config.merge.server_optimizer
    found = component_of(config.merge, "server_optimizer", ServerOptimizer)
    step = cast("ServerStep", getattr(found, "step", found))
    return step if is_built_in("server_optimizer", name) else user_server_step(name, step)


def anonymity_of(config: Config) -> AnonymityTerms | None:
    """Return how the aggregation hides clients among each other; None: it does not."""
    found = component_of(config.merge, "name", Aggregation)
    return found.anonymity() if isinstance(found, Aggregation) else None


def noise_on_clients(config: Config) -> bool:
    """Say whether the aggregation adds noise whose guarantee counts on every client."""
    terms = anonymity_of(config)
    return config.privacy.client_noise > 0 or (terms is not None and terms.accounted)


def sum_noise_of(config: Config) -> SumNoise | None:
    """Return the noise on the sums that heads are solved from; None: there is none."""
    privacy = config.privacy
    if not algorithm_of(config).subtracts or privacy.client_noise == 0:
        return None
    return SumNoise(privacy.client_clip, privacy.client_noise)


def head_noise_of(config: Config, classes: int) -> HeadNoise | None:
    """Return the noise on heads that are solved; None: there is none."""
    privacy = config.privacy
    return algorithm_of(config).head_noise(privacy.record_clip, privacy.record_noise, classes)


def sums_of(config: Config) -> SumKind:
    """Return whether models depend on data through sums alone, and under what noise.

    A user's own class must say so itself: what it inherits is not believed.
    """
    found = algorithm_of(config)
    built_in = is_built_in("algorithm", config.method.name)
    if not found.subtracts or not (built_in or "subtracts" in vars(type(found))):
        return "none"
    return "exact" if sum_noise_of(config) is None else "noisy"


def _aggregation(
    config: Config, clients: int, organisations: Mapping[Handle, str] | None
) -> Aggregator:
    name = config.merge.name
    found = component_of(config.merge, "name", Aggregation)
    if isinstance(found, Aggregation):
        federation = _federation(config, clients)
        merge = found.prepared(replace(federation, organisations=organisations))
    else:
        merge = cast("Aggregator", found)
    return merge if is_built_in("aggregation", name) else user_aggregator(name, merge)


def _federation(config: Config, clients: int) -> FederationInfo:
    def noise_multiplier(epsilon: float, delta: float, sizes: Sequence[int]) -> float:
        # the accountants take seconds to load, and a client never needs them
        from covey.dp.run_guarantees import representative_noise

        return representative_noise(epsilon, delta, config.rounds, tuple(sizes))

    return FederationInfo(
        clients=clients,
        rounds=config.rounds,
        participation=config.train.participation,
        shared=Capability.SHARED_MODEL not in algorithm_of(config).claim("").rules_out,
        noise_multiplier=noise_multiplier,
    )


def _clipping(config: Config, clients: int) -> Clipping:
    """Return how updates are clipped and hidden, in a federation of so many clients."""
    privacy = config.privacy
    return Clipping(
        clip=privacy.client_clip,
        noise_multiplier=privacy.client_noise,
        sampling=config.train.participation,
        clients=clients,
    )


def algorithm_isolates(config: Config) -> bool:
    """Say whether the algorithm keeps every cluster to its own clients."""
    found = component_of(config.method, "name", Algorithm)
    told = is_built_in("algorithm", config.method.name) or _says(found, "isolates_clusters")
    return told and found.isolates_clusters


def merging_isolates(config: Config) -> bool:
    """Say whether a cluster's next model hangs on its own clients alone."""
    return _aggregation_isolates(config) and _optimizer_isolates(config)


def mixes_clusters(config: Config) -> bool:
    """Say whether a user's own code may carry one cluster's clients into another.

    It may, unless it is known not to. What built-in components carry is recorded as it
    happens.
    """
    merge = config.merge
    own = {
        kind: not is_built_in(kind, name)
        for kind, name in (
            ("algorithm", config.method.name),
            ("aggregation", merge.name),
            ("server_optimizer", merge.server_optimizer),
        )
    }
    return (
        (own["algorithm"] and not algorithm_isolates(config))
        or (
            own["aggregation"]
            and not _aggregation_isolates(config)
            and not _is_clusterwise(component_of(merge, "name", Aggregation))
        )
        or (own["server_optimizer"] and not _optimizer_isolates(config))
    )


def _aggregation_isolates(config: Config) -> bool:
    found = component_of(config.merge, "name", Aggregation)
    return _keeps_apart(found, is_known=is_built_in("aggregation", config.merge.name))


def _optimizer_isolates(config: Config) -> bool:
    name = config.merge.server_optimizer
    found = component_of(config.merge, "server_optimizer", ServerOptimizer)
    return _keeps_apart(found, is_known=is_built_in("server_optimizer", name))


def _keeps_apart(component: object, *, is_known: bool) -> bool:
    """Say whether a component claims isolation, and may be believed."""
    if not isinstance(component, Component):
        return False
    told = is_known or _says(component, "rules_out") or _says(component, "claim")
    return told and Capability.CLUSTER_ISOLATION not in component.claim("").rules_out


def _is_clusterwise(component: object) -> bool:
    """Say whether it is only ever shown the updates of one cluster at a time."""
    return isinstance(component, ClusterwiseAggregation) and all(
        getattr(type(component), name) is getattr(ClusterwiseAggregation, name)
        for name in ("aggregate", "prepared")
    )


def _says(component: object, name: str) -> bool:
    return name in vars(type(component))


def components_used(config: Config, module: nn.Module) -> tuple[ComponentsUsed, ...]:
    """Return the fact which components are a user's own or have options, if any do.

    Fixed features in the model are told always, with what their numbers hash to.
    """
    found = {
        f"{ModelConfig.section}.{path}": _told(part)
        for path, part in module.named_modules()
        if isinstance(part, FrozenFeatures)
    }
    for _, section in config:
        if isinstance(section, ComponentSection):
            found |= _named_in(section)
    if not found:
        return ()
    return (ComponentsUsed(found, mixes_clusters(config)),)


def _told(features: FrozenFeatures) -> dict[str, object]:
    return {
        "name": features.name,
        "options": features.options,
        "source": features.source,
        "tensors": features.tensors,
    }


def _named_in(section: ComponentSection) -> dict[str, dict[str, object]]:
    """Return the components of one section that are worth a record."""
    found: dict[str, dict[str, object]] = {}
    for field, kind in type(section).slots.items():
        name, key = getattr(section, field), f"{type(section).section}.{field}"
        options = getattr(section, options_key(field))
        usual = type(section).model_fields[field].default
        if not options and (name == usual or is_built_in(kind, name)):
            continue
        source = "" if is_built_in(kind, name) else source_hash(find(kind, name, key))
        found[key] = {"name": name, "options": options, "source": source}
    return found
