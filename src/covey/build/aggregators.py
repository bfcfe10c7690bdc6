"""From settings to an aggregation: a mean, a noisy mean, or anonymity sets."""

from typing import cast

from covey.aggregation import (
    Aggregator,
    AnonymityConfig,
    Clipping,
    L2Bound,
    anonymity_aggregator,
    dp_anonymity,
    mean_per_cluster,
    noise_scale,
    noised_mean,
    set_sizes,
    with_stored_updates,
)
from covey.build.owned import user_aggregator
from covey.build.plugins import imported
from covey.build.settled import algorithm_of
from covey.components import Capability
from covey.config import Config

__all__ = ["aggregator_of"]


def aggregator_of(
    config: Config, clients: int, clips: tuple[float, ...] = ()
) -> Aggregator:
    """Return the aggregation of a federation of so many clients.

    Where clips follow the updates, the one for these clips.
    """
    settings = config.merge
    if settings.name == "anonymity-sets":
        aggregate = anonymity_aggregator(_anonymity_config(config, clients))
    elif config.privacy.client_noise > 0:
        aggregate = noised_mean(_clipping(config, clients), clips)
    elif settings.name == "mean":
        aggregate = mean_per_cluster
    else:
        found = cast("Aggregator", imported("merge.name", settings.name))
        aggregate = user_aggregator(settings.name, found)
    return (
        with_stored_updates(aggregate) if config.unlearning.store_updates else aggregate
    )


def _anonymity_config(config: Config, clients: int) -> AnonymityConfig:
    settings = config.merge
    k = settings.min_anonymity
    if settings.noise == "sound":
        # the accountants take seconds to load, and a client never needs them
        from covey.dp import representative_noise

        shared = Capability.SHARED_MODEL not in algorithm_of(config).claim("").rules_out
        together = shared and config.train.participation == 1
        sizes = set_sizes(clients, k) if together else (k,)
        z = representative_noise(settings.epsilon, settings.delta, config.rounds, sizes)
        return dp_anonymity(k, L2Bound(settings.radius, z))
    return AnonymityConfig(
        min_anonymity=k,
        partition=settings.partition,
        distance=settings.distance,
        max_distance=settings.max_distance,
        noise=noise_scale(
            settings.noise, settings.distance, settings.sigma * settings.radius
        ),
    )


def _clipping(config: Config, clients: int) -> Clipping:
    """Return how updates are clipped and hidden, in a federation of so many clients."""
    privacy = config.privacy
    return Clipping(
        clip=privacy.client_clip,
        noise_multiplier=privacy.client_noise,
        adaptive=privacy.adaptive_clip,
        sampling=config.train.participation,
        clients=clients,
    )
