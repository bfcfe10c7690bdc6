"""From settings to a merge: a mean, a noisy mean, or anonymity sets."""

from typing import cast

from covey.aggregation import (
    Ball,
    Clipping,
    Hiding,
    Merge,
    in_anonymity_sets,
    mean_per_cluster,
    noise_scales,
    noised_mean,
    set_sizes,
    soundly,
    storing,
)
from covey.build.owned import owned_merge
from covey.build.plugins import imported
from covey.config import Config

__all__ = ["merge_of"]


def merge_of(config: Config, clients: int, clips: tuple[float, ...] = ()) -> Merge:
    """Return the merge of a federation of so many clients.

    Where clips follow the updates, the one for these clips.
    """
    settings = config.merge
    if settings.name == "anonymity-sets":
        merge = in_anonymity_sets(_hiding(config, clients))
    elif config.privacy.client_noise > 0:
        merge = noised_mean(_clipping(config, clients), clips)
    elif settings.name == "mean":
        merge = mean_per_cluster
    else:
        found = cast("Merge", imported("merge.name", settings.name))
        merge = owned_merge(settings.name, found)
    return storing(merge) if config.unlearning.store_updates else merge


def _hiding(config: Config, clients: int) -> Hiding:
    settings = config.merge
    k = settings.min_anonymity
    if settings.noise == "sound":
        # the accountants take seconds to load, and a client never needs them
        from covey.dp import representative_noise

        together = config.method.name == "fedavg" and config.train.participation == 1
        sizes = set_sizes(clients, k) if together else (k,)
        z = representative_noise(settings.epsilon, settings.delta, config.rounds, sizes)
        return soundly(k, Ball(settings.radius, z))
    return Hiding(
        min_anonymity=k,
        partition=settings.partition,
        distance=settings.distance,
        max_distance=settings.max_distance,
        noise=noise_scales(
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
