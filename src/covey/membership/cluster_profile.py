"""What the server knows of a cluster's clients: all, or all but their groups."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from covey.engine.protocol import Engine, ScoringJob
from covey.membership.assessment import Profile, Target
from covey.membership.shadow_federation import ShadowSetup, shifted

__all__ = ["Profiler", "inferred_profiles", "reported_profiles"]

MAX_POOL_SAMPLE = 1_000
"""Images of the pool that tell one transform from another."""


@dataclass(frozen=True, slots=True, eq=False)
class Profiler:
    """A way to learn whom the shadows must copy, and what to call it."""

    note: str
    profile_of: Callable[[Target], Profile]


def reported_profiles() -> Profiler:
    """Let the clients tell how many of each group and size they are."""

    def profile_of(target: Target) -> Profile:
        return tuple(sorted((c.group or 0, len(c.train)) for c in target.members))

    return Profiler("groups as the clients report them", profile_of)


def inferred_profiles(engine: Engine, setup: ShadowSetup) -> Profiler:
    """Guess one transform for the whole cluster from its model alone.

    t* = argmin_t f(theta_j, t(pool)), over the transforms of the population's groups
    """

    def profile_of(target: Target) -> Profile:
        group = _likeliest(engine, setup, target)
        return tuple(sorted((group, len(client.train)) for client in target.members))

    return Profiler("groups inferred from the model's loss on the pool", profile_of)


def _likeliest(engine: Engine, setup: ShadowSetup, target: Target) -> int:
    some = torch.arange(min(MAX_POOL_SAMPLE, len(setup.pool)))
    at = setup.streams.at("transforms")
    jobs = [
        ScoringJob(
            target.params,
            shifted(setup, group, some, at.at(group).generator()),
        )
        for group in range(len(setup.shifts))
    ]
    losses = torch.stack([each.losses.mean() for each in engine.score(jobs)])
    return int(losses.nan_to_num(nan=torch.inf).argmin())
