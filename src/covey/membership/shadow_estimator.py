"""Risk from shadow federations: the papers' red team, made to match its target.

A shadow model trained centrally, or on another number of examples, reports the risk of
another recipe. So each shadow is a federation: pseudo-clients with the sizes and groups
of the cluster's own, drawn from the server's pool, play the same rounds with the same
merge. It is kept, and plays on, as long as the cluster keeps its clients.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from covey.components.capability import Capability
from covey.components.section import Count, Positive
from covey.components.state import kept
from covey.engine.protocol import Engine
from covey.membership.assessment import Assessment, Profile, RedTeam, Target
from covey.membership.base import RiskContext, RiskEstimator
from covey.membership.estimates import MIN_RECORDS, Finding, Withheld, extrapolated
from covey.membership.extrapolation import power_law, predicted
from covey.membership.shadow_evaluation import (
    ShadowResult,
    accuracy_mismatch,
    evaluate_shadow,
    gap_corrected,
    leave_one_out,
    target_accuracies,
)
from covey.membership.shadow_federation import (
    ShadowFederation,
    ShadowFederations,
    ShadowSetup,
    advance,
    draw_shadow_data,
    examples_in,
    plan_shadows,
    shadows_for,
)
from covey.params import not_finite
from covey.rng import Streams

__all__ = ["ShadowEstimator", "shadow"]


class ShadowEstimator(RiskEstimator):
    """Attack federations of the server's own that play this run's rounds.

    Attributes:
        shadows: federations per cluster.
        pool: examples that the server holds for them; 0: what is left.
    """

    requires: ClassVar[frozenset[Capability]] = frozenset(
        {
            Capability.SERVER_DATA,
            Capability.CLASS_LABELS,
            Capability.KNOWN_POPULATION,
        }
    )

    shadows: Positive = 3
    pool: Count = 0

    def estimate(
        self, target: Target, context: RiskContext, streams: Streams
    ) -> Finding:
        """Return what shadows say that were never there before."""
        return self.assess(target, context, streams).finding

    def assess(
        self, target: Target, context: RiskContext, streams: Streams
    ) -> Assessment:
        """Let the shadows that the target brings play on, and attack them."""
        setup = ShadowSetup(
            pool=context.pool,
            shifts=context.shifts,
            shadows=self.shadows,
            start=context.start,
            play_round=context.play_round,
            streams=context.streams.at("shadow"),
            population_profile=context.population_profile,
            shared_rounds=context.shared_rounds,
        )
        return shadow(context.engine, setup)(target, streams)


def shadow(engine: Engine, setup: ShadowSetup) -> RedTeam:
    """Attack shadow federations of the cluster's size and kind (Algorithm 2, TrainMIA).

    The threshold that judges a shadow is fitted on the others; the gap between train and
    test accuracy is the target's own, as its clients report it. The figure is withheld
    when the shadows do not behave like the cluster's model. Where the pool is too small
    for its size, the figure is extrapolated from smaller shadows, and never calibrated.
    """

    def assess(target: Target, _: Streams) -> Assessment:
        if not target.members:
            return _with_shadows(target, Withheld("no client has chosen this cluster"))
        profile = tuple(sorted((c.group or 0, len(c.train)) for c in target.members))
        plan = plan_shadows(profile, setup)
        if not plan:
            return _with_shadows(target, Withheld(_too_small_reason(profile, setup)))
        pairs = [
            _advance_and_attack(engine, each, target, setup)
            for each in shadows_for(target, plan, setup)
        ]
        if any(not_finite(federation.params) for federation, _ in pairs):
            return _with_shadows(target, Withheld("its shadow federations diverged"))
        results = [result for _, result in pairs]
        if examples_in(plan[0]) == examples_in(profile):
            finding = _matched_finding(engine, target, results)
        else:
            finding = _extrapolated_finding(results, examples_in(profile), setup)
        return _with_shadows(
            target, finding, tuple(federation for federation, _ in pairs)
        )

    return assess


def _with_shadows(
    target: Target, finding: Finding, shadows: tuple[ShadowFederation, ...] = ()
) -> Assessment:
    """Return what was found, and these shadows of the cluster beside all others'."""
    before = kept(target.states, ShadowFederations).clusters
    after = ShadowFederations(clusters={**before, target.cluster: shadows})
    return Assessment(finding, after)


def _advance_and_attack(
    engine: Engine,
    federation: ShadowFederation,
    target: Target,
    setup: ShadowSetup,
) -> tuple[ShadowFederation, ShadowResult]:
    """Bring a shadow up to the target's round, and attack it."""
    data = draw_shadow_data(federation, setup)
    grown = advance(federation, data, target.round_index, setup)
    return grown, evaluate_shadow(engine, grown, target, data)


def _matched_finding(
    engine: Engine, target: Target, results: Sequence[ShadowResult]
) -> Finding:
    accuracies = target_accuracies(engine, target, results)
    figures = leave_one_out(results)
    members = sum(len(client.train) for client in target.members)
    if wrong := accuracy_mismatch(accuracies, results, members):
        return Withheld(wrong)
    if not figures:
        return Withheld(
            f"no group has {MIN_RECORDS} members and {MIN_RECORDS} non-members in the pool"
        )
    clients = len(target.members)
    rests_on = (
        f"{len(results)} shadow federations of {clients} pseudo-clients; groups as the "
        f"clients report them"
    )
    return replace(
        predicted(gap_corrected(figures, results, accuracies)), reason=rests_on
    )


def _extrapolated_finding(
    results: Sequence[ShadowResult], members: int, setup: ShadowSetup
) -> Finding:
    """Draw the line through the sizes that the pool allows."""
    each = setup.shadows
    sizes = [leave_one_out(results[i : i + each]) for i in range(0, len(results), each)]
    if not all(sizes):
        return Withheld(f"the pool's {len(setup.pool)} examples allow no three sizes")
    largest = max(group[0].members for group in sizes)
    rests_on = (
        f"{len(results)} shadow federations of up to {largest} examples, and the cluster "
        f"has {members}"
    )
    return extrapolated(power_law(sizes, members), rests_on)


def _too_small_reason(profile: Profile, setup: ShadowSetup) -> str:
    members, pool = examples_in(profile), len(setup.pool)
    return (
        f"shadows as large as the cluster need {members} examples and at least "
        f"{MIN_RECORDS} more, smaller ones three sizes in half of the pool, and the "
        f"server's pool holds {pool}"
    )
