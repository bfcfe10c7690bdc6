"""Risk figures from shadow federations: the papers' red team, made to match its target.

A shadow model trained centrally, or on another number of examples, reports the risk of
another recipe. So each shadow is a federation: pseudo-clients with the sizes and groups
of the cluster's own, drawn from the server's pool, play the same rounds with the same
merge. It is kept, and plays on, as long as the cluster keeps its clients.
"""

from collections.abc import Sequence

from covey.engine.protocol import Engine
from covey.events import RiskMeasured
from covey.membership.assessment import (
    Assessment,
    Profile,
    RedTeam,
    ShadowFederation,
    Target,
    extrapolated,
    stated,
    withheld,
)
from covey.membership.cluster_profile import Profiler, reported
from covey.membership.estimates import FEWEST
from covey.membership.extrapolation import power_law, predicted
from covey.membership.shadow_evaluation import (
    Trial,
    adjusted,
    behaviour,
    left_out,
    mismatch,
    tried,
)
from covey.membership.shadow_federation import (
    Laboratory,
    advanced,
    dealt,
    examples_in,
    kept,
    planned,
)
from covey.params import not_finite
from covey.rng import Streams

__all__ = ["shadow"]


def shadow(
    engine: Engine, laboratory: Laboratory, profiler: Profiler | None = None
) -> RedTeam:
    """Attack shadow federations of the cluster's size and kind (Algorithm 2, TrainMIA).

    The threshold that judges a shadow is fitted on the others; the gap between train and
    test accuracy is the target's own, as its clients report it. The figure is withheld
    when the shadows do not behave like the cluster's model. Where the pool is too small
    for its size, the figure is extrapolated from smaller shadows, and never calibrated.
    """
    profiler = profiler or reported()

    def assess(target: Target, _: Streams) -> Assessment:
        if not target.members:
            return Assessment(
                withheld(target, NAME, "no client has chosen this cluster")
            )
        profile = profiler.profile_of(target)
        plan = planned(profile, laboratory)
        if not plan:
            return Assessment(withheld(target, NAME, _too_small(profile, laboratory)))
        pairs = [
            _attacked(engine, each, target, laboratory)
            for each in kept(target, plan, laboratory)
        ]
        if any(not_finite(federation.params) for federation, _ in pairs):
            return Assessment(withheld(target, NAME, "its shadow federations diverged"))
        trials = [trial for _, trial in pairs]
        if examples_in(plan[0]) == examples_in(profile):
            figure = _matched(engine, target, trials, profiler.note)
        else:
            figure = _smaller(target, trials, examples_in(profile), laboratory)
        return Assessment(figure, tuple(federation for federation, _ in pairs))

    return assess


NAME = "shadow"


def _attacked(
    engine: Engine,
    federation: ShadowFederation,
    target: Target,
    laboratory: Laboratory,
) -> tuple[ShadowFederation, Trial]:
    """Bring a shadow up to the target's round, and attack it."""
    hands = dealt(federation, laboratory)
    grown = advanced(federation, hands, target.round_index, laboratory)
    return grown, tried(engine, grown, target, hands)


def _matched(
    engine: Engine, target: Target, trials: Sequence[Trial], note: str
) -> RiskMeasured:
    own, figures = behaviour(engine, target, trials), left_out(trials)
    members = sum(len(client.train) for client in target.members)
    if wrong := mismatch(own, trials, members):
        return withheld(target, NAME, wrong)
    if not figures:
        reason = f"no group has {FEWEST} members and {FEWEST} non-members in the pool"
        return withheld(target, NAME, reason)
    clients = len(target.members)
    rests_on = f"{len(trials)} shadow federations of {clients} pseudo-clients; {note}"
    figure = predicted(adjusted(figures, trials, own))
    return stated(target, NAME, figure, rests_on)


def _smaller(
    target: Target, trials: Sequence[Trial], members: int, laboratory: Laboratory
) -> RiskMeasured:
    """Draw the line through the sizes that the pool allows."""
    each = laboratory.shadows
    sizes = [left_out(trials[i : i + each]) for i in range(0, len(trials), each)]
    if not all(sizes):
        reason = f"the pool's {len(laboratory.pool)} examples allow no three sizes"
        return withheld(target, NAME, reason)
    figure = power_law(sizes, members)
    largest = max(group[0].members for group in sizes)
    rests_on = (
        f"{len(trials)} shadow federations of up to {largest} examples, and the cluster "
        f"has {members}"
    )
    return extrapolated(target, NAME, figure, rests_on)


def _too_small(profile: Profile, laboratory: Laboratory) -> str:
    members, pool = examples_in(profile), len(laboratory.pool)
    return (
        f"shadows as large as the cluster need {members} examples and at least {FEWEST} "
        f"more, smaller ones three sizes in half of the pool, and the server's pool holds "
        f"{pool}"
    )
