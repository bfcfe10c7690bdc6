"""Shadow federations: a server's own clients, made to match those of a cluster."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from covey.components.state import ComponentState, kept
from covey.data.examples import Examples
from covey.data.partition import apportion
from covey.data.shift import ShiftRange
from covey.membership.assessment import Profile, Target
from covey.membership.estimates import MIN_RECORDS
from covey.membership.references import PlayRound
from covey.rng import Streams
from covey.types import Params

__all__ = [
    "ShadowData",
    "ShadowFederation",
    "ShadowFederations",
    "ShadowSetup",
    "advance",
    "draw_shadow_data",
    "examples_in",
    "plan_shadows",
    "shadows_for",
    "shifted",
]

MIN_NON_MEMBERS = 2_000
"""Non-members of a shadow, if it has fewer members: they cost a forward pass only."""


@dataclass(frozen=True, slots=True, eq=False)
class ShadowFederation:
    """A federation of pseudo-clients that plays the rounds which a cluster plays.

    Attributes:
        profile: whose sizes and groups the pseudo-clients copy.
        place: cluster, round in which it was set up, and index: names its streams.
        rounds: how many rounds it has played.
    """

    profile: Profile
    place: tuple[int, int, int]
    rounds: int
    params: Params


class ShadowFederations(ComponentState):
    """What a server keeps of each cluster's shadows from one measurement to the next."""

    key = "shadow-federations"
    clusters: Mapping[int, tuple[ShadowFederation, ...]] = {}


@dataclass(frozen=True, slots=True, eq=False)
class ShadowSetup:
    """All that a server needs to rerun its recipe on examples of its own.

    Attributes:
        pool: the server's examples, not shifted, disjoint from every client's.
        shifts: per group, how its images differ.
        shadows: federations per cluster.
        start: per cluster, the model that the run began with: the server drew it, and
            how fast a model learns by heart hangs on that draw too.
        play_round: the round of this index, by the run's own recipe, over these data
            sets.
        streams: independent of the clients' streams.
        population_profile: the profile of the whole population.
        shared_rounds: how many rounds everybody played together at first (warm start).
    """

    pool: Examples
    shifts: tuple[ShiftRange, ...]
    shadows: int
    start: tuple[Params, ...]
    play_round: PlayRound
    streams: Streams
    population_profile: Profile = ()
    shared_rounds: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class ShadowData:
    """What the pseudo-clients of one shadow hold; no image is in two places.

    Attributes:
        members: per pseudo-client, what it trains on.
        bystanders: per pseudo-client of the other clusters, what it trains on in the
            rounds that everybody plays together.
        non_members: per group, the non-members, in the members' proportions.
    """

    members: tuple[Examples, ...]
    bystanders: tuple[Examples, ...]
    non_members: Mapping[int, Examples]


def examples_in(profile: Profile) -> int:
    """Return how many examples these clients hold together."""
    return sum(size for _, size in profile)


def plan_shadows(profile: Profile, setup: ShadowSetup) -> tuple[Profile, ...]:
    """Return whom each shadow copies: the cluster, or parts of it in three sizes.

    Parts, of m, m / 2 and m / 4 clients, where the pool is too small for the whole; m
    leaves half of the pool as non-members. None where it allows no three sizes.
    """
    pool = len(setup.pool)
    if examples_in(profile) + MIN_RECORDS <= pool:
        return (profile,) * setup.shadows
    parts = [_thinned(profile, count) for count in range(1, len(profile) + 1)]
    largest = sum(1 for part in parts if examples_in(part) <= pool / 2)
    if largest < 3:
        return ()
    counts = (largest, round(largest / 2), round(largest / 4))
    return tuple(parts[n - 1] for n in counts for _ in range(setup.shadows))


def _thinned(profile: Profile, count: int) -> Profile:
    """Return so many of the clients, evenly spaced: the groups keep their shares."""
    middles = (np.arange(count) + 0.5) * len(profile) / max(1, count)
    return tuple(profile[index] for index in middles.astype(int))


def shadows_for(
    target: Target, plan: tuple[Profile, ...], setup: ShadowSetup
) -> tuple[ShadowFederation, ...]:
    """Return the shadows so far, or new ones if over 10% of the clients changed."""
    before = kept(target.states, ShadowFederations).clusters.get(target.cluster, ())
    if len(plan) == len(before) and all(
        _still_matches(shadow.profile, profile)
        for shadow, profile in zip(before, plan, strict=True)
    ):
        return before

    def built(index: int) -> ShadowFederation:
        place = (target.cluster, target.round_index, index)
        return ShadowFederation(plan[index], place, 0, setup.start[target.cluster])

    return tuple(built(index) for index in range(len(plan)))


def _still_matches(profile: Profile, wanted: Profile) -> bool:
    before, now = Counter(profile), Counter(wanted)
    changed = (before - now) + (now - before)
    return changed.total() <= 0.1 * len(wanted)


def advance(
    federation: ShadowFederation, data: ShadowData, rounds: int, setup: ShadowSetup
) -> ShadowFederation:
    """Play the rounds that the target has played since the last time.

    Bystanders play along in the shared rounds, as they did in the target's history: a
    model that the members had trained alone from the start would know them better.
    """
    at = _streams(federation, setup)
    params = federation.params
    for round_index in range(federation.rounds, rounds):
        shared = round_index < setup.shared_rounds
        present = data.members + (data.bystanders if shared else ())
        streams = at.at("round", round_index)
        params = setup.play_round(round_index, params, present, streams)
    return replace(federation, rounds=rounds, params=params)


def _streams(federation: ShadowFederation, setup: ShadowSetup) -> Streams:
    return setup.streams.at(*federation.place)


def draw_shadow_data(federation: ShadowFederation, setup: ShadowSetup) -> ShadowData:
    """Deal the pool to members, non-members and bystanders."""
    profile = federation.profile
    generator = _streams(federation, setup).at("pool").generator()
    pool = torch.from_numpy(generator.permutation(len(setup.pool)))
    inside, rest = _partitioned(pool, profile)
    needed, bystander_profile = examples_in(profile), _bystander_profile(profile, setup)
    room = max(
        needed, len(rest) - examples_in(bystander_profile)
    )  # bystanders before more non-members
    count = min(len(rest), room, max(MIN_NON_MEMBERS, needed))
    by_group: dict[int, float] = {}
    for group, size in profile:
        by_group[group] = by_group.get(group, 0.0) + size
    shares = apportion(count, list(by_group.values()))
    outside, rest = _partitioned(rest, tuple(zip(by_group, shares, strict=True)))
    share = min(1.0, len(rest) / max(1, examples_in(bystander_profile)))
    bystanders, _ = _partitioned(
        rest, _thinned(bystander_profile, int(share * len(bystander_profile)))
    )

    def shift(group: int, block: Tensor) -> Examples:
        return shifted(setup, group, block, generator)

    return ShadowData(
        members=tuple(shift(*each) for each in inside),
        non_members={group: shift(group, block) for group, block in outside},
        bystanders=tuple(shift(*each) for each in bystanders),
    )


def _bystander_profile(profile: Profile, setup: ShadowSetup) -> Profile:
    """Return the rest of the population, where there were rounds with all of it."""
    if not setup.shared_rounds:
        return ()
    rest = Counter(setup.population_profile) - Counter(profile)
    return tuple(sorted(rest.elements()))


def _partitioned(
    pool: Tensor, profile: Profile
) -> tuple[list[tuple[int, Tensor]], Tensor]:
    """Return a block of the pool per (group, size), and what is left."""
    ends = np.cumsum([0, *(size for _, size in profile)]).tolist()
    blocks = [
        (group, pool[start : start + size])
        for (group, size), start in zip(profile, ends, strict=False)
    ]
    return blocks, pool[ends[-1] :]


def shifted(
    setup: ShadowSetup, group: int, block: Tensor, generator: np.random.Generator
) -> Examples:
    """Return these examples of the pool as if they were the group's."""
    raw, shift = setup.pool.take(block), setup.shifts[group]
    return Examples(shift.shifted(raw.inputs, generator), raw.labels)
