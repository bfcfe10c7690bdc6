"""Shadow federations: a server's own clients, made to match those of a cluster."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from covey.data.examples import Examples
from covey.data.shifts import Shift
from covey.redteam.assessment import Profile, ShadowFederation, Target
from covey.rng import Streams
from covey.types import Params

__all__ = ["Laboratory", "advanced", "kept", "profile_of", "pseudo_clients"]


@dataclass(frozen=True, slots=True, eq=False)
class Laboratory:
    """All that a server needs to rerun its recipe on examples of its own.

    Attributes:
        pool: the server's examples, not shifted, disjoint from every client's.
        shifts: per group, how its images differ.
        shadows: federations per cluster.
        init: a fresh model.
        play_round: one round of the federation's recipe over these data sets.
        streams: independent of the clients' streams.
    """

    pool: Examples
    shifts: tuple[Shift, ...]
    shadows: int
    init: Callable[[Streams], Params]
    play_round: Callable[[Params, tuple[Examples, ...], Streams], Params]
    streams: Streams


def profile_of(target: Target) -> Profile:
    """Return the groups and sizes of the cluster's clients."""
    return tuple(sorted((c.group or 0, len(c.train)) for c in target.members))


def kept(
    target: Target, profile: Profile, laboratory: Laboratory
) -> tuple[ShadowFederation, ...]:
    """Return the shadows so far, or new ones if over 10% of the clients changed."""
    if target.shadows:
        before, now = Counter(target.shadows[0].profile), Counter(profile)
        changed = (before - now) + (now - before)
        if changed.total() <= 0.1 * len(profile):
            return target.shadows

    def built(index: int) -> ShadowFederation:
        place = (target.cluster, target.round_index, index)
        at = laboratory.streams.at(*place, "initial model")
        return ShadowFederation(profile, place, rounds=0, params=laboratory.init(at))

    return tuple(built(index) for index in range(laboratory.shadows))


def advanced(
    federation: ShadowFederation, rounds: int, laboratory: Laboratory
) -> ShadowFederation:
    """Play the rounds that the target has played since the last time."""
    at = _streams(federation, laboratory)
    members, _ = pseudo_clients(federation, laboratory)
    params = federation.params
    for round_index in range(federation.rounds, rounds):
        params = laboratory.play_round(params, members, at.at("round", round_index))
    return replace(federation, rounds=rounds, params=params)


def _streams(federation: ShadowFederation, laboratory: Laboratory) -> Streams:
    return laboratory.streams.at(*federation.place)


def pseudo_clients(
    federation: ShadowFederation, laboratory: Laboratory
) -> tuple[tuple[Examples, ...], tuple[Examples, ...]]:
    """Return members and non-members per pseudo-client; no image is on both sides."""
    profile = federation.profile
    generator = _streams(federation, laboratory).at("pool").generator()
    order = torch.from_numpy(generator.permutation(len(laboratory.pool)))
    sizes = [size for _, size in profile]
    inside = order[: sum(sizes)].split(sizes)
    spare = order[sum(sizes) : 2 * sum(sizes)]
    shares = np.diff(np.linspace(0, len(spare), len(sizes) + 1).astype(int)).tolist()
    outside = spare.split(shares)

    def shifted(blocks: tuple[torch.Tensor, ...]) -> tuple[Examples, ...]:
        return tuple(
            _shifted(laboratory, group, block, generator)
            for (group, _), block in zip(profile, blocks, strict=True)
        )

    return shifted(inside), shifted(outside)


def _shifted(
    laboratory: Laboratory,
    group: int,
    block: torch.Tensor,
    generator: np.random.Generator,
) -> Examples:
    raw, shift = laboratory.pool.take(block), laboratory.shifts[group]
    amounts = shift.draw(len(block), generator)
    return Examples(shift.apply(raw.inputs, amounts), raw.labels)
