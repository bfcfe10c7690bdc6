"""Risk from shadow federations: the papers' red team, made to match its target.

A shadow model trained centrally, or on another number of examples, reports the risk of
another recipe. So each shadow is a federation: pseudo-clients with the sizes and groups
of the cluster's own, drawn from the server's pool, play the same rounds with the same
merge. It is kept, and plays on, as long as the cluster keeps its clients.

References:
    Smyth, Linear Models and Empirical Bayes Methods, 2004 (moderated variances).
    arXiv 2402.06674: the log of the advantage is linear in the log of the number of
    examples.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor

from covey.base.built_ins import component
from covey.base.component_state import ComponentState, get_state
from covey.base.components import Positive
from covey.base.figure import Figure, RiskEstimate
from covey.base.names import Params
from covey.base.params import not_finite
from covey.base.rng import Streams
from covey.data.examples import Examples
from covey.data.partition import apportion
from covey.engine.protocol import Engine, Scored, ScoringJob
from covey.membership.attacks import best_threshold, risk_at, scores_of
from covey.membership.estimators import RiskContext, RiskEstimator
from covey.membership.intervals import MIN_RECORDS, known_aucs, stratified
from covey.membership.truth import Assessment, Profile, Target

PRIOR_WEIGHT = 4
"""Degrees of freedom that the sampling error counts for beside the shadows' spread."""


MIN_NON_MEMBERS = 2_000
"""Non-members of a shadow, if it has fewer members: they cost a forward pass only."""

MOST_GAP = 0.03
"""By how much the shadows' gap between train and test accuracy may differ from the cluster's."""

MOST_LEVEL = 0.1
"""The same of the train accuracy itself: while models learn fast, as after a warm start, equal
recipes on other examples differ by several points. What they remember shows in the gap."""


def moderated(values: Sequence[float], sampling_error: float) -> float:
    """Return the standard deviation of one draw, out of a few draws.

    s^2 = [d sigma^2 + sum_k (x_k - mean x)^2] / (d + K - 1), and at least sigma^2

    Three draws alone have two degrees of freedom, and are close together by chance once
    in a while; the sampling error sigma is what must be there even between equal models.
    """
    x = np.asarray(values)
    squares = PRIOR_WEIGHT * sampling_error**2 + np.sum((x - x.mean()) ** 2)
    pooled = squares / (PRIOR_WEIGHT + len(x) - 1)
    return float(np.sqrt(max(pooled, sampling_error**2)))


def predicted(shadows: Sequence[RiskEstimate]) -> RiskEstimate:
    """Return what the shadows say of a target of their size.

    SE = s sqrt(1 + 1 / K): the target is one more draw, and the mean is not certain.
    """
    return _mean_with_error(shadows, np.sqrt(1 + 1 / len(shadows)))


def _mean_with_error(shadows: Sequence[RiskEstimate], factor: float) -> RiskEstimate:
    """Return the shadows' mean risk, with `factor` times their spread as its error."""
    risks = [figure.risk for figure in shadows]
    sampling = float(np.mean([figure.standard_error for figure in shadows]))
    return RiskEstimate(
        Figure(float(np.mean(risks)), float(moderated(risks, sampling) * factor)),
        auc=float(np.mean(known_aucs(shadows))),
        members=shadows[0].members,
        non_members=shadows[0].non_members,
    )


def power_law(by_size: Sequence[Sequence[RiskEstimate]], members: int) -> RiskEstimate:
    """Extrapolate from shadows of several sizes to a cluster of `members` examples.

    log(2 risk - 1) = a + b log n, by least squares, b <= 0: more data never expose more.
    SE^2 = (SE of the line, by the delta method)^2 + s^2 of the largest shadows

    An advantage below its own standard error counts as that: its logarithm says nothing.
    It is of smaller federations, and so never calibrated.
    """
    means = [_mean_with_error(group, 1 / np.sqrt(len(group))) for group in by_size]
    errors = np.array([2 * figure.standard_error for figure in means])
    advantages = np.maximum([2 * figure.risk - 1 for figure in means], errors)
    x, y = np.log([figure.members for figure in means]), np.log(advantages)
    relative = errors / advantages
    (slope, level), covariance = np.polyfit(x, y, 1, w=1 / relative, cov="unscaled")
    if slope > 0:
        weights = relative**-2
        slope, level = 0.0, weights @ y / weights.sum()
        covariance = np.diag([0.0, 1 / weights.sum()])
    at = np.array([np.log(members), 1.0])
    log_advantage, log_error = slope * at[0] + level, np.sqrt(at @ covariance @ at)
    advantage = min(1.0, float(np.exp(log_advantage)))
    largest = max(by_size, key=lambda group: group[0].members)
    draw = _mean_with_error(largest, 1.0)
    error = float(np.hypot(advantage * log_error / 2, draw.standard_error))
    return replace(draw, figure=Figure(0.5 + advantage / 2, error), calibrated=False)


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
class _ShadowData:
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


def _examples_in(profile: Profile) -> int:
    """Return how many examples these clients hold together."""
    return sum(size for _, size in profile)


def plan_shadows(profile: Profile, pool: int, shadows: int) -> tuple[Profile, ...]:
    """Return whom each shadow copies: the cluster, or parts of it in three sizes.

    Parts, of m, m / 2 and m / 4 clients, where the pool is too small for the whole; m
    leaves half of the pool as non-members. None where it allows no three sizes.

    Args:
        profile: of the cluster.
        pool: how many examples the server has.
        shadows: federations of each size.
    """
    if _examples_in(profile) + MIN_RECORDS <= pool:
        return (profile,) * shadows
    parts = [_thinned(profile, count) for count in range(1, len(profile) + 1)]
    largest = sum(1 for part in parts if _examples_in(part) <= pool / 2)
    if largest < 3:
        return ()
    counts = (largest, round(largest / 2), round(largest / 4))
    return tuple(parts[n - 1] for n in counts for _ in range(shadows))


def _thinned(profile: Profile, count: int) -> Profile:
    """Return so many of the clients, evenly spaced: the groups keep their shares."""
    middles = (np.arange(count) + 0.5) * len(profile) / max(1, count)
    return tuple(profile[index] for index in middles.astype(int))


def _shadows_for(
    target: Target, plan: tuple[Profile, ...], start: Params
) -> tuple[ShadowFederation, ...]:
    """Return the shadows so far, or new ones if over 10% of the clients changed."""
    before = get_state(target.states, ShadowFederations).clusters.get(target.cluster, ())
    if len(plan) == len(before) and all(
        _still_matches(shadow.profile, profile)
        for shadow, profile in zip(before, plan, strict=True)
    ):
        return before
    place = target.cluster, target.round_index
    return tuple(
        ShadowFederation(start_of, (*place, i), 0, start) for i, start_of in enumerate(plan)
    )


def _still_matches(profile: Profile, wanted: Profile) -> bool:
    before, now = Counter(profile), Counter(wanted)
    changed = (before - now) + (now - before)
    return changed.total() <= 0.1 * len(wanted)


def _advance(
    federation: ShadowFederation, data: _ShadowData, rounds: int, context: RiskContext
) -> ShadowFederation:
    """Play the rounds that the target has played since the last time.

    Bystanders play along in the shared rounds, as they did in the target's history: a
    model that the members had trained alone from the start would know them better.
    """
    at = context.streams.at("shadow").at(*federation.place)
    params = federation.params
    for round_index in range(federation.rounds, rounds):
        shared = round_index < context.shared_rounds
        present = data.members + (data.bystanders if shared else ())
        params = context.play_round(round_index, params, present, at.at("round", round_index))
    return replace(federation, rounds=rounds, params=params)


def _draw_shadow_data(federation: ShadowFederation, context: RiskContext) -> _ShadowData:
    """Deal the pool to members, non-members and bystanders."""
    profile = federation.profile
    generator = context.streams.at("shadow").at(*federation.place).at("pool").generator()
    pool = torch.from_numpy(generator.permutation(len(context.pool)))
    inside, rest = _partitioned(pool, profile)
    others: Profile = ()  # the rest of the population, where there were rounds with all of it
    if context.shared_rounds:
        absent = Counter(context.population_profile) - Counter(profile)
        others = tuple(sorted(absent.elements()))
    needed = _examples_in(profile)
    room = max(needed, len(rest) - _examples_in(others))  # bystanders before more non-members
    count = min(len(rest), room, max(MIN_NON_MEMBERS, needed))
    by_group = Counter[int]()
    for group, size in profile:
        by_group[group] += size
    shares = apportion(count, list(by_group.values()))
    outside, rest = _partitioned(rest, tuple(zip(by_group, shares, strict=True)))
    share = min(1.0, len(rest) / max(1, _examples_in(others)))
    bystanders, _ = _partitioned(rest, _thinned(others, int(share * len(others))))

    def shifted(group: int, block: Tensor) -> Examples:
        raw, shift = context.pool.take(block), context.shifts[group]
        return Examples(shift.shifted(raw.inputs, generator), raw.labels)

    return _ShadowData(
        members=tuple(shifted(*member) for member in inside),
        non_members={group: shifted(group, block) for group, block in outside},
        bystanders=tuple(shifted(*bystander) for bystander in bystanders),
    )


def _partitioned(pool: Tensor, profile: Profile) -> tuple[list[tuple[int, Tensor]], Tensor]:
    """Return a block of the pool per (group, size), and what is left."""
    ends = np.cumsum([size for _, size in profile]).tolist()
    *blocks, rest = pool.tensor_split(ends)
    return [(group, block) for (group, _), block in zip(profile, blocks, strict=True)], rest


@dataclass(frozen=True, slots=True, eq=False)
class ShadowResult:
    """One shadow's scores on its own members and non-members, and its accuracies.

    Attributes:
        inside, outside: scores per group of members and of non-members.
        train, test: how often it is right on members, and on non-members.
        target_test: accuracy of the target's model on the same non-members.
    """

    inside: Mapping[int, ndarray]
    outside: Mapping[int, ndarray]
    train: float
    test: float
    target_test: float


def _evaluate_shadow(
    engine: Engine, federation: ShadowFederation, target: Target, data: _ShadowData
) -> ShadowResult:
    """Score a shadow, and the target beside it."""
    sets: dict[int, list[Examples]] = {}
    for (group, _), examples in zip(federation.profile, data.members, strict=True):
        sets.setdefault(group, []).append(examples)
    members = [Examples.joined(examples) for examples in sets.values()]
    others = [data.non_members[group] for group in sets]
    jobs = [ScoringJob(federation.params, examples) for examples in (*members, *others)]
    scored = engine.score(jobs + [ScoringJob(target.params, examples) for examples in others])
    n = len(sets)
    scores = [scores_of(row.losses.double().numpy()) for row in scored[: 2 * n]]
    return ShadowResult(
        inside=dict(zip(sets, scores[:n], strict=True)),
        outside=dict(zip(sets, scores[n:], strict=True)),
        train=_accuracy(scored[:n]),
        test=_accuracy(scored[n : 2 * n]),
        target_test=_accuracy(scored[2 * n :]),
    )


def _accuracy(scored: Sequence[Scored]) -> float:
    right = [row.correct.double() for row in scored if row.correct is not None]
    return float(torch.cat(right).mean())


def leave_one_out(results: Sequence[ShadowResult]) -> list[RiskEstimate]:
    """Judge each shadow by thresholds that were fitted on the others, group by group.

    One shadow alone is judged by its own. Empty where no group has enough records.
    """
    estimates = [_estimate_of(results, index) for index in range(len(results))]
    known = [figure for figure in estimates if figure is not None]
    return known if len(known) == len(results) else []


def _estimate_of(results: Sequence[ShadowResult], index: int) -> RiskEstimate | None:
    others = [t for i, t in enumerate(results) if i != index] or list(results)
    result, strata = results[index], list[RiskEstimate]()
    for group in result.inside:
        inside, outside = result.inside[group], result.outside[group]
        if min(len(inside), len(outside)) >= MIN_RECORDS:
            threshold = best_threshold(
                np.concatenate([t.inside[group] for t in others]),
                np.concatenate([t.outside[group] for t in others]),
            )
            strata.append(risk_at(threshold, inside, outside))
    return stratified(strata)


def _gap_risk(train: float, test: float) -> float:
    """Return the MIA accuracy of "whatever is answered rightly is a member".

    1/2 + (train - test) / 2

    References:
        Yeom, Giacomelli, Fredrikson, Jha, Privacy Risk in Machine Learning, 2018.
    """
    return 0.5 + (train - test) / 2


def _gap_corrected(
    estimates: Sequence[RiskEstimate], results: Sequence[ShadowResult], gap: float
) -> list[RiskEstimate]:
    """Move each shadow's risk by as much as the gap attack's is lower than the target's.

    risk_k + gap risk of the target - gap risk of shadow k

    What the clients report makes the gap attack exact on the target itself; the shadows
    only show by how much a loss threshold does better.
    """
    moved = [
        estimate.risk + gap - _gap_risk(result.train, result.test)
        for estimate, result in zip(estimates, results, strict=True)
    ]
    return [
        replace(estimate, figure=Figure(risk, estimate.standard_error))
        for estimate, risk in zip(estimates, moved, strict=True)
    ]


def _mismatch(
    what: str, shadows: Sequence[float], target: float, sampling_error: float, most: float
) -> str:
    """Say how the shadows fail to behave like a cluster's model; "" if they do.

    |mean of the shadows - target| > max(most, 2 SE)

    SE is that of one more draw: equal recipes on other examples do differ, and by how
    much, the shadows show.
    """
    error = moderated(shadows, sampling_error) * np.sqrt(1 + 1 / len(shadows))
    allowed, mean = max(most, 2 * error), float(np.mean(shadows))
    if abs(mean - target) <= allowed:
        return ""
    return (
        f"the shadows' {what} is {mean:.3f} and the cluster model's {target:.3f}, further "
        f"apart than {allowed:.3f}"
    )


@component("risk_estimator", "shadow")
class ShadowEstimator(RiskEstimator):
    """Attack federations of the server's own that play this run's rounds.

    They are of the cluster's size and kind (Algorithm 2, TrainMIA). The threshold that judges a
    shadow is fitted on the others; the gap between train and test accuracy is the target's
    own, as its clients report it. The figure is withheld when the shadows do not behave
    like the cluster's model.

    Attributes:
        shadows: shadow federations per cluster. Where the server's images are too few to
            match a cluster, its figure is extrapolated from smaller ones.
        use_extrapolated: whether clients choose by extrapolated figures, too. Reports call
            them not calibrated in any case, and do not count them.
    """

    needs_client_data: ClassVar[bool] = False
    needs_pool: ClassVar[bool] = True

    shadows: Positive = 3
    use_extrapolated: bool = False

    def estimate(self, target: Target, context: RiskContext, streams: Streams) -> RiskEstimate:
        """Return what shadows say that were never there before."""
        return self.assess(target, context, streams).estimate

    def assess(
        self,
        target: Target,
        context: RiskContext,
        streams: Streams,  # noqa: ARG002 - shadows have streams of their own
    ) -> Assessment:
        """Let the target's own shadows play on, and attack them."""
        finding, shadows = self._attacked(target, context)
        before = get_state(target.states, ShadowFederations).clusters
        after = ShadowFederations(clusters={**before, target.cluster: shadows})
        return Assessment(finding, after)

    def _attacked(
        self, target: Target, context: RiskContext
    ) -> tuple[RiskEstimate, tuple[ShadowFederation, ...]]:
        if not target.members:
            return RiskEstimate.unknown("no client has chosen this cluster"), ()
        profile = tuple(sorted((c.group or 0, len(c.train)) for c in target.members))
        members, pool = _examples_in(profile), len(context.pool)
        plan = plan_shadows(profile, pool, self.shadows)
        if not plan:
            too_small = (
                f"shadows as large as the cluster need {members} examples and at least "
                f"{MIN_RECORDS} more, smaller ones three sizes in half of the pool, and the "
                f"server's pool holds {pool}"
            )
            return RiskEstimate.unknown(too_small), ()
        shadows, results = list[ShadowFederation](), list[ShadowResult]()
        for shadow in _shadows_for(target, plan, context.start[target.cluster]):
            data = _draw_shadow_data(shadow, context)
            shadows.append(_advance(shadow, data, target.round_index, context))
            results.append(_evaluate_shadow(context.engine, shadows[-1], target, data))
        if any(not_finite(shadow.params) for shadow in shadows):
            return RiskEstimate.unknown("its shadow federations diverged"), ()
        if _examples_in(plan[0]) == members:
            return _matched_finding(context.engine, target, results), tuple(shadows)
        return self._extrapolated_finding(results, members, pool), tuple(shadows)

    def _extrapolated_finding(
        self, results: Sequence[ShadowResult], members: int, pool: int
    ) -> RiskEstimate:
        """Draw the line through the sizes that the pool allows."""
        starts = range(0, len(results), self.shadows)
        sizes = [leave_one_out(results[i : i + self.shadows]) for i in starts]
        if not all(sizes):
            return RiskEstimate.unknown(f"the pool's {pool} examples allow no three sizes")
        largest = max(group[0].members for group in sizes)
        rests_on = (
            f"extrapolated: {len(results)} shadow federations of up to {largest} examples, and "
            f"the cluster has {members}"
        )
        law = power_law(sizes, members)
        return replace(law, rests_on=rests_on, steers=self.use_extrapolated)


def _matched_finding(
    engine: Engine, target: Target, results: Sequence[ShadowResult]
) -> RiskEstimate:
    scored = engine.score([ScoringJob(target.params, member.train) for member in target.members])
    # as its clients report, and as the pool shows
    train, test = _accuracy(scored), float(np.mean([result.target_test for result in results]))
    members = sum(len(client.train) for client in target.members)
    others = min(sum(map(len, result.outside.values())) for result in results)
    own, unseen = train * (1 - train) / members, test * (1 - test) / others  # variances
    levels, gaps = [e.train for e in results], [e.train - e.test for e in results]
    if wrong := _mismatch("train accuracy", levels, train, own**0.5, MOST_LEVEL) or _mismatch(
        "gap to the test accuracy", gaps, train - test, (own + unseen) ** 0.5, MOST_GAP
    ):
        return RiskEstimate.unknown(wrong)
    figures = leave_one_out(results)
    if not figures:
        return RiskEstimate.unknown(
            f"no group has {MIN_RECORDS} members and {MIN_RECORDS} non-members in the pool"
        )
    rests_on = (
        f"{len(results)} shadow federations of {len(target.members)} pseudo-clients; groups "
        f"as the clients report them"
    )
    corrected = _gap_corrected(figures, results, _gap_risk(train, test))
    return replace(predicted(corrected), rests_on=rests_on)
