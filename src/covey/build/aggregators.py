"""From settings to what makes the next models out of updates: two components."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

from covey.aggregation import (
    Aggregation,
    Aggregator,
    AnonymityTerms,
    Clipping,
    FederationInfo,
    ServerOptimizer,
    ServerStep,
    arrived_mean,
    noised_mean,
    with_stored_updates,
)
from covey.build.owned import user_aggregator, user_server_step
from covey.build.settled import algorithm_of
from covey.components import Capability, component_of, is_built_in
from covey.config import Config, is_remote
from covey.errors import ConfigError
from covey.heads import HeadNoise, SumNoise
from covey.types import Handle
from covey.unlearning.plan import SumKind

__all__ = [
    "aggregator_of",
    "anonymity_of",
    "head_noise_of",
    "masked_aggregator_of",
    "noise_on_clients",
    "server_step_of",
    "sum_noise_of",
    "sums_of",
]


def aggregator_of(
    config: Config,
    clients: int,
    organisations: Mapping[Handle, str] | None = None,
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
    return (
        step if is_built_in("server_optimizer", name) else user_server_step(name, step)
    )


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
    return algorithm_of(config).head_noise(
        privacy.record_clip, privacy.record_noise, classes
    )


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
        from covey.dp import representative_noise

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
