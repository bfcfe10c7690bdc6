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

from covey.base.names import Params
from covey.base.params import not_finite
from covey.base.risk import Finding, RiskEstimate, Withheld
from covey.base.rng import Streams
from covey.components.parts import Positive
from covey.components.state import ComponentState, kept
from covey.data.examples import Examples, ShiftRange
from covey.data.partition import apportion
from covey.engine.protocol import Engine, Scored, ScoringJob
from covey.membership.attacks import auc, best_threshold, rates_at, scores_of
from covey.membership.estimators import RiskContext, RiskEstimator
from covey.membership.intervals import (
    MIN_RECORDS,
    estimate_of,
    extrapolated,
    known_aucs,
    stratified,
)
from covey.membership.references import PlayRound
from covey.membership.truth import Assessment, Profile, RedTeam, Target

PRIOR_WEIGHT = 4
"""Degrees of freedom that the sampling error counts for beside the shadows' spread."""


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
    return _averaged(shadows, np.sqrt(1 + 1 / len(shadows)))


def _averaged(shadows: Sequence[RiskEstimate], factor: float) -> RiskEstimate:
    risks = [figure.risk for figure in shadows]
    sampling = float(np.mean([figure.standard_error for figure in shadows]))
    return RiskEstimate(
        risk=float(np.mean(risks)),
        standard_error=float(moderated(risks, sampling) * factor),
        auc=float(np.mean(known_aucs(shadows))),
        members=shadows[0].members,
        non_members=shadows[0].non_members,
    )


@dataclass(frozen=True, slots=True)
class _Line:
    """log advantage = a + b log n, with the covariance of (b, a)."""

    slope: float
    intercept: float
    covariance: np.ndarray

    def at(self, log_n: float) -> tuple[float, float]:
        """Return the value there and its standard error."""
        x = np.array([log_n, 1.0])
        value = self.slope * log_n + self.intercept
        return value, float(np.sqrt(x @ self.covariance @ x))


def power_law(by_size: Sequence[Sequence[RiskEstimate]], members: int) -> RiskEstimate:
    """Extrapolate from shadows of several sizes to a cluster of `members` examples.

    log(2 risk - 1) = a + b log n, by least squares, b <= 0: more data never expose more.
    SE^2 = (SE of the line, by the delta method)^2 + s^2 of the largest shadows

    An advantage below its own standard error counts as that: its logarithm says nothing.
    """
    means = [_averaged(group, 1 / np.sqrt(len(group))) for group in by_size]
    errors = np.array([2 * figure.standard_error for figure in means])
    advantages = np.maximum([2 * figure.risk - 1 for figure in means], errors)
    line = _fitted(
        np.log([figure.members for figure in means]), np.log(advantages), errors / advantages
    )
    log_advantage, log_error = line.at(np.log(members))
    advantage = min(1.0, float(np.exp(log_advantage)))
    largest = max(by_size, key=lambda group: group[0].members)
    draw = _averaged(largest, 1.0)
    return RiskEstimate(
        risk=0.5 + advantage / 2,
        standard_error=float(np.hypot(advantage * log_error / 2, draw.standard_error)),
        auc=draw.auc,
        members=draw.members,
        non_members=draw.non_members,
    )


def _fitted(x: np.ndarray, y: np.ndarray, errors: np.ndarray) -> _Line:
    (slope, intercept), covariance = np.polyfit(x, y, 1, w=1 / errors, cov="unscaled")
    if slope <= 0:
        return _Line(float(slope), float(intercept), covariance)
    weights = errors**-2
    level = float(weights @ y / weights.sum())
    return _Line(0.0, level, np.diag([0.0, 1 / weights.sum()]))


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


def _partitioned(pool: Tensor, profile: Profile) -> tuple[list[tuple[int, Tensor]], Tensor]:
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


@dataclass(frozen=True, slots=True)
class Accuracies:
    """How often a model is right on its members, and on non-members."""

    train: float
    test: float

    @property
    def gap_risk(self) -> float:
        """MIA accuracy of "whatever is answered rightly is a member".

        1/2 + (train - test) / 2

        References:
            Yeom, Giacomelli, Fredrikson, Jha, Privacy Risk in Machine Learning, 2018.
        """
        return 0.5 + (self.train - self.test) / 2


@dataclass(frozen=True, slots=True, eq=False)
class ShadowResult:
    """One shadow's scores on its own members and non-members, and its accuracies.

    Attributes:
        inside, outside: scores per group of members and of non-members.
        accuracies: of the shadow.
        target_test: accuracy of the target's model on the same non-members.
    """

    inside: Mapping[int, ndarray]
    outside: Mapping[int, ndarray]
    accuracies: Accuracies
    target_test: float


def evaluate_shadow(
    engine: Engine, federation: ShadowFederation, target: Target, data: ShadowData
) -> ShadowResult:
    """Score a shadow, and the target beside it."""
    members = _by_group(federation, data)
    groups, non_members = list(members), data.non_members
    jobs = [
        ScoringJob(params, side[group])
        for params, side in (
            (federation.params, members),
            (federation.params, non_members),
            (target.params, non_members),
        )
        for group in groups
    ]
    scored, n = engine.score(jobs), len(groups)
    inside, outside, on_target = scored[:n], scored[n : 2 * n], scored[2 * n :]
    return ShadowResult(
        inside=_scores(groups, inside),
        outside=_scores(groups, outside),
        accuracies=Accuracies(train=_accuracy(inside), test=_accuracy(outside)),
        target_test=_accuracy(on_target),
    )


def _by_group(federation: ShadowFederation, data: ShadowData) -> Mapping[int, Examples]:
    groups: dict[int, list[Examples]] = {}
    for (group, _), examples in zip(federation.profile, data.members, strict=True):
        groups.setdefault(group, []).append(examples)
    return {group: Examples.joined(sets) for group, sets in groups.items()}


def _scores(groups: Sequence[int], scored: Sequence[Scored]) -> Mapping[int, ndarray]:
    losses = [each.losses.double().numpy() for each in scored]
    return {g: scores_of(each) for g, each in zip(groups, losses, strict=True)}


def _accuracy(scored: Sequence[Scored]) -> float:
    right = [each.correct.double() for each in scored if each.correct is not None]
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
            rates = rates_at(threshold, inside, outside)
            strata.append(estimate_of(rates, auc(inside, outside)))
    return stratified(strata)


def target_accuracies(
    engine: Engine, target: Target, results: Sequence[ShadowResult]
) -> Accuracies:
    """Return the target's accuracies: as its clients report, and as the pool shows."""
    datasets = [client.train for client in target.members]
    scored = engine.score([ScoringJob(target.params, each) for each in datasets])
    test = float(np.mean([result.target_test for result in results]))
    return Accuracies(_accuracy(scored), test)


def gap_corrected(
    estimates: Sequence[RiskEstimate], results: Sequence[ShadowResult], target: Accuracies
) -> list[RiskEstimate]:
    """Move each shadow's risk by as much as the gap attack's is lower than the target's.

    risk_k + gap risk of the target - gap risk of shadow k

    What the clients report makes the gap attack exact on the target itself; the shadows
    only tell by how much a loss threshold does better.
    """
    return [
        replace(figure, risk=figure.risk + target.gap_risk - result.accuracies.gap_risk)
        for figure, result in zip(estimates, results, strict=True)
    ]


def accuracy_mismatch(
    target_accuracies: Accuracies, results: Sequence[ShadowResult], members: int
) -> str:
    """Say how the shadows fail to behave like a cluster's model; "" if they do.

    |mean of the shadows - target| > max(0.03, 2 SE), for the train and the test accuracy

    SE is that of one more draw: equal recipes on other examples do differ, and by how
    much, the shadows show.
    """
    shadows = [result.accuracies for result in results]
    num_non_members = min(sum(map(len, trial.outside.values())) for trial in results)
    for side, shadow_accuracies, target, count in (
        ("train", [each.train for each in shadows], target_accuracies.train, members),
        ("test", [each.test for each in shadows], target_accuracies.test, num_non_members),
    ):
        sampling = float(np.sqrt(target * (1 - target) / count))
        error = moderated(shadow_accuracies, sampling) * np.sqrt(1 + 1 / len(shadow_accuracies))
        allowed, mean = max(0.03, 2 * error), float(np.mean(shadow_accuracies))
        if abs(mean - target) > allowed:
            return (
                f"the shadows' {side} accuracy is {mean:.3f} and the cluster model's "
                f"{target:.3f}, further apart than {allowed:.3f}"
            )
    return ""


class ShadowEstimator(RiskEstimator):
    """Attack federations of the server's own that play this run's rounds.

    Attributes:
        shadows: shadow federations per cluster. Where the server's images are too few to
            match a cluster, its figure is extrapolated from smaller ones, and nobody acts
            on it.
    """

    needs_client_data: ClassVar[bool] = False
    needs_pool: ClassVar[bool] = True

    shadows: Positive = 3

    def estimate(self, target: Target, context: RiskContext, streams: Streams) -> Finding:
        """Return what shadows say that were never there before."""
        return self.assess(target, context, streams).finding

    def assess(self, target: Target, context: RiskContext, streams: Streams) -> Assessment:
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
        return _with_shadows(target, finding, tuple(federation for federation, _ in pairs))

    return assess


def _with_shadows(
    target: Target, finding: Finding, shadows: tuple[ShadowFederation, ...] = ()
) -> Assessment:
    """Return what was found, and these shadows of the cluster beside all others'."""
    before = kept(target.states, ShadowFederations).clusters
    after = ShadowFederations(clusters={**before, target.cluster: shadows})
    return Assessment(finding, after)


def _advance_and_attack(
    engine: Engine, federation: ShadowFederation, target: Target, setup: ShadowSetup
) -> tuple[ShadowFederation, ShadowResult]:
    """Bring a shadow up to the target's round, and attack it."""
    data = draw_shadow_data(federation, setup)
    grown = advance(federation, data, target.round_index, setup)
    return grown, evaluate_shadow(engine, grown, target, data)


def _matched_finding(engine: Engine, target: Target, results: Sequence[ShadowResult]) -> Finding:
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
    return replace(predicted(gap_corrected(figures, results, accuracies)), reason=rests_on)


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
