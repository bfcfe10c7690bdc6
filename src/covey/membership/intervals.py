"""What an attack achieves, with 95% intervals, and what a mean hides.

What an attack achieves, with 95% intervals: rates over records of several groups.

Members are compared with non-members of their own group only; groups are then averaged,
weighted by their members. Intervals are over records: another model trained on the same
recipe would be one more draw.

The blind baseline: can members be told from non-members without any model?

If they can, the two sides do not match, and an attack's success would show the mismatch
and not what a model remembers.

References:
    Smyth, Linear Models and Empirical Bayes Methods, 2004 (moderated variances).
    arXiv 2402.06674: the log of the advantage is linear in the log of the number of
    examples.
    Das, Zhang, Tramèr, Blind Baselines Beat Membership Inference Attacks, 2024.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray

from covey.base.risk import RiskEstimate
from covey.base.rng import Streams
from covey.data.examples import Examples, hashes
from covey.membership.attacks import Rates, auc, best_threshold, cross_fitted, rates_at

MIN_RECORDS = 10
"""Records on each side below which an estimate says nothing."""

EXTRAPOLATED = "extrapolated"
"""How the reason of an extrapolated estimate begins, so that they can be counted."""


def estimate_of(rates: Rates, auc: float, reason: str = "") -> RiskEstimate:
    """Return the estimate that an attack's rates amount to."""
    return RiskEstimate(
        risk=rates.accuracy,
        standard_error=rates.standard_error,
        auc=auc,
        members=rates.members,
        non_members=rates.non_members,
        reason=reason,
    )


def extrapolated(estimate: RiskEstimate, reason: str) -> RiskEstimate:
    """Mark an estimate that nobody may act on: it is of smaller federations."""
    return replace(estimate, calibrated=False, reason=f"{EXTRAPOLATED}: {reason}")


def stratified(strata: Sequence[RiskEstimate]) -> RiskEstimate | None:
    """Average the estimates of several groups, weighted by their members.

    Mixing groups before comparing would let an attack succeed by telling groups apart.
    """
    if not strata:
        return None
    members = np.array([each.members for each in strata])
    share = members / members.sum()
    errors = np.array([each.standard_error for each in strata])
    return RiskEstimate(
        risk=float(share @ [each.risk for each in strata]),
        standard_error=float(np.sqrt(((share * errors) ** 2).sum())),
        auc=float(share @ known_aucs(strata)),
        members=int(members.sum()),
        non_members=sum(each.non_members for each in strata),
    )


def known_aucs(estimates: Sequence[RiskEstimate]) -> list[float]:
    """Return the AUC of each; NaN where it was not measured."""
    return [float("nan") if each.auc is None else each.auc for each in estimates]


LEVEL = 0.95
Z = 1.959963984540054
"""Of a normal figure, so many standard errors either way hold it with `LEVEL`."""

Sides = tuple[Float[ndarray, "_"], Float[ndarray, "_"]]
"""The scores of one group's members and of its non-members."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure and its 95% interval, or why there is none.

    Attributes:
        reason: "" where there is a value.
    """

    value: float | None
    low: float | None
    high: float | None
    reason: str = ""

    @classmethod
    def around(cls, value: float, standard_error: float) -> "Estimate":
        """Return value +- 1.96 SE, inside [0, 1]."""
        reach = Z * standard_error
        return cls(value, max(0.0, value - reach), min(1.0, value + reach))

    def standard_error(self) -> float:
        """Return the standard error that a value was given its interval for."""
        low, value = self.low or 0.0, self.value or 0.0
        return (value - low) / Z

    @classmethod
    def unknown(cls, reason: str) -> "Estimate":
        """Return no figure, and why."""
        return cls(None, None, None, reason)


@dataclass(frozen=True, slots=True)
class AttackMetrics:
    """How well one attack tells members from non-members.

    Attributes:
        balanced_accuracy: (TPR + TNR) / 2, by thresholds fitted on other records.
        auc: the chance that a member scores higher than a non-member.
        tpr_at_1_percent: share of members found while 1% of non-members are accused.
        tpr_at_01_percent: the same at 0.1%.
    """

    balanced_accuracy: Estimate
    auc: Estimate
    tpr_at_1_percent: Estimate
    tpr_at_01_percent: Estimate
    members: int
    non_members: int


def attack_metrics(strata: Sequence[Sides], streams: Streams) -> AttackMetrics:
    """Judge an attack by its scores; groups with under 10 records a side do not count.

    Balanced accuracy has the interval of its SE, AUC Hanley and McNeil's, and TPR Clopper
    and Pearson's at the threshold that the non-members set.
    """
    known = [each for each in strata if min(map(len, each)) >= MIN_RECORDS]
    folds = [streams.at("folds", index).generator() for index in range(len(known))]
    figures = [
        estimate_of(cross_fitted(*sides, generator), auc(*sides))
        for sides, generator in zip(known, folds, strict=True)
    ]
    whole = stratified(figures)
    if whole is None:
        none = Estimate.unknown(f"fewer than {MIN_RECORDS} members or non-members")
        return AttackMetrics(none, none, none, none, *_sizes(strata))
    shares = np.array([figure.members for figure in figures]) / whole.members
    aucs = known_aucs(figures)
    errors = np.array(
        [hanley_mcneil(auc, f.members, f.non_members) for f, auc in zip(figures, aucs, strict=True)]
    )
    (area,) = known_aucs([whole])
    return AttackMetrics(
        balanced_accuracy=Estimate.around(whole.risk, whole.standard_error),
        auc=Estimate.around(area, float(np.sqrt(((shares * errors) ** 2).sum()))),
        tpr_at_1_percent=tpr_at(0.01, known),
        tpr_at_01_percent=tpr_at(0.001, known),
        members=whole.members,
        non_members=whole.non_members,
    )


def tpr_at(fpr: float, strata: Sequence[Sides]) -> Estimate:
    """Return the share of members above all but `fpr` of their group's non-members.

    Unknown below 10 / fpr non-members in some group: too few would set the threshold.
    """
    least = round(10 / fpr)
    fewest = min((len(others) for _, others in strata), default=0)
    if fewest < least:
        return Estimate.unknown(
            f"a false positive rate of {fpr:.1%} needs at least {least:,} "
            f"non-members of each group, found {fewest:,}"
        )
    hits = sum(_tpr_at(fpr, sides) for sides in strata)
    members = sum(len(inside) for inside, _ in strata)
    return Estimate(hits / members, *clopper_pearson(hits, members))


def roc(strata: Sequence[Sides], points: int = 60) -> tuple[tuple[float, float], ...]:
    """Return (FPR, TPR), from 1 / non-members of the smallest group up to (1, 1)."""
    fewest = min((len(others) for _, others in strata), default=0)
    members = sum(len(inside) for inside, _ in strata)
    if not fewest or not members:
        return ()
    counts = np.unique(np.geomspace(1, fewest, points).round()) / fewest
    return tuple(
        (float(fpr), float(sum(_tpr_at(fpr, sides) for sides in strata) / members))
        for fpr in counts
    )


def clopper_pearson(hits: int, trials: int, level: float = LEVEL) -> tuple[float, float]:
    """Return the exact interval of a binomial share (Clopper, Pearson, 1934)."""
    from scipy.stats import beta

    tail = (1 - level) / 2
    low = beta.ppf(tail, hits, trials - hits + 1) if hits else 0.0
    high = beta.ppf(1 - tail, hits + 1, trials - hits) if hits < trials else 1.0
    return float(low), float(high)


def hanley_mcneil(auc: float, members: int, non_members: int) -> float:
    """Return the standard error of an AUC (Hanley, McNeil, 1982).

    SE^2 = [A(1 - A) + (n1 - 1)(Q1 - A^2) + (n0 - 1)(Q2 - A^2)] / (n1 n0)
    with Q1 = A / (2 - A), Q2 = 2 A^2 / (1 + A).
    """
    q1, q2 = auc / (2 - auc), 2 * auc**2 / (1 + auc)
    spread = (members - 1) * (q1 - auc**2) + (non_members - 1) * (q2 - auc**2)
    variance = (auc * (1 - auc) + spread) / (members * non_members)
    return float(np.sqrt(max(0.0, variance)))


def _tpr_at(fpr: float, sides: Sides) -> int:
    """Count the members above the threshold that accuses at most `fpr` of the others."""
    inside, others = sides
    accused = min(int(fpr * len(others) + 1e-9), len(others))
    if accused == len(others):
        return len(inside)
    return int(np.sum(inside > np.sort(others)[::-1][accused]))


def _sizes(strata: Sequence[Sides]) -> tuple[int, int]:
    return sum(len(a) for a, _ in strata), sum(len(b) for _, b in strata)


ACCUSED = 0.01


class Extremes(NamedTuple):
    """What stands beside the mean success of an attack.

    Attributes:
        tpr_at_1: share of members found while 1% of non-members are accused.
        worst_client: the largest balanced accuracy on one client's members, at the
            threshold that is best for all; of few records it is large by chance alone.
    """

    tpr_at_1: float
    worst_client: float


def extremes_of(
    inside: Sequence[Float[ndarray, " _"]], outside: Float[ndarray, " _"]
) -> Extremes | None:
    """Return both, from the scores of each client's members and of all non-members.

    None where there are too few of either.
    """
    own = [each for each in inside if len(each) >= MIN_RECORDS]
    if not own or len(outside) < MIN_RECORDS:
        return None
    together = np.concatenate(own)
    accepted = np.quantile(outside, 1 - ACCUSED, method="inverted_cdf")
    found = float((together > accepted).mean())
    threshold = best_threshold(together, outside)
    accused = float((outside >= threshold).mean())
    worst = max(float((each >= threshold).mean()) for each in own)
    return Extremes(found, (worst + 1 - accused) / 2)


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


def blind_baseline(
    members: Float[ndarray, "members features"],
    non_members: Float[ndarray, "others features"],
    generator: np.random.Generator,
) -> tuple[Rates, float]:
    """Return how well a classifier of records tells the sides apart: its rates and AUC.

    Trained on one random half of each side and judged on the other: over cross-validation
    folds the errors would depend on each other, and the standard error would be too small.
    """
    from sklearn.ensemble import RandomForestClassifier

    halves = [_blind_halves(side, generator) for side in (members, non_members)]
    learn, judge = zip(*halves, strict=True)
    forest = RandomForestClassifier(
        n_estimators=100,
        min_samples_leaf=2,
        class_weight="balanced",
        n_jobs=torch.get_num_threads(),  # each tree has a seed of its own
        random_state=int(generator.integers(2**31)),
    )
    forest.fit(np.concatenate(learn), np.repeat([1, 0], [len(side) for side in learn]))
    forest.n_jobs = 1  # several threads would add up the trees in any order
    inside, outside = (np.asarray(forest.predict_proba(side))[:, 1] for side in judge)
    return rates_at(0.5, inside, outside), auc(inside, outside)


def _blind_halves(
    side: Float[ndarray, "records features"], generator: np.random.Generator
) -> tuple[ndarray, ndarray]:
    shuffled = generator.permutation(side)
    middle = len(side) // 2
    return shuffled[:middle], shuffled[middle:]


MOST = 0.01
"""Share of the non-members that may be copies: a risk is then off by 0.005 at most."""


def copied(members: Iterable[Examples], others: Iterable[Examples]) -> str:
    """Say that the others have inputs of the members; "" if hardly any has.

    Labels do not count: a member under another label is no non-member.
    """
    inside = {each for examples in members for each in hashes(examples.inputs)}
    found = [each in inside for examples in others for each in hashes(examples.inputs)]
    if sum(found) <= MOST * len(found):
        return ""
    return (
        f"non-members must not be what clients train on, found {sum(found)} of "
        f"{len(found)} with the inputs of a member. Hold out other examples, and remove "
        f"duplicates before anything is held out"
    )
