"""What an attack achieves, with 95% intervals, and what a mean hides.

Members are compared with non-members of their own group only; groups are then averaged,
weighted by their members. Intervals are over records: another model trained on the same
recipe would be one more draw.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from covey.base.figure import Figure, RiskEstimate, Z
from covey.base.rng import Streams
from covey.membership.attacks import auc, best_threshold, cross_fitted

MIN_RECORDS = 10
"""Records on each side below which an estimate says nothing."""


LEVEL = 0.95

ACCUSED = 0.01

ROC_POINTS = 60


def stratified(strata: Sequence[RiskEstimate]) -> RiskEstimate | None:
    """Average the estimates of several groups, weighted by their members.

    Mixing groups before comparing would let an attack succeed by separating groups.
    """
    if not strata:
        return None
    members = np.array([stratum.members for stratum in strata])
    share = members / members.sum()
    errors = np.array([stratum.standard_error for stratum in strata])
    return RiskEstimate(
        Figure(
            float(share @ [stratum.risk for stratum in strata]),
            float(np.sqrt(((share * errors) ** 2).sum())),
        ),
        auc=float(share @ known_aucs(strata)),
        members=int(members.sum()),
        non_members=sum(stratum.non_members for stratum in strata),
    )


def known_aucs(estimates: Sequence[RiskEstimate]) -> list[float]:
    """Return the AUC of each; NaN where it was not measured."""
    return [float("nan") if estimate.auc is None else estimate.auc for estimate in estimates]


Sides = tuple[Float[ndarray, "_"], Float[ndarray, "_"]]
"""The scores of one group's members and of its non-members."""


@dataclass(frozen=True, slots=True)
class AttackMetrics:
    """How well one attack separates members from non-members.

    Attributes:
        balanced_accuracy: (TPR + TNR) / 2, by thresholds fitted on other records.
        auc: the chance that a member scores higher than a non-member.
        tpr_at_1_percent: share of members found while 1% of non-members are accused.
        tpr_at_01_percent: the same at 0.1%.
    """

    balanced_accuracy: Figure
    auc: Figure
    tpr_at_1_percent: Figure
    tpr_at_01_percent: Figure
    members: int
    non_members: int

    def estimate(self, attack: str) -> RiskEstimate:
        """Return the risk by this attack."""
        return RiskEstimate(
            self.balanced_accuracy,
            self.auc.value,
            self.members,
            self.non_members,
            source=attack,
            tpr_at_1=self.tpr_at_1_percent.value,
        )


def attack_metrics(strata: Sequence[Sides], streams: Streams) -> AttackMetrics:
    """Judge an attack by its scores; groups with under 10 records a side do not count.

    Balanced accuracy has the interval of its SE, AUC Newcombe's, and TPR Clopper and
    Pearson's over all thresholds that so many non-members may set.
    """
    known = [stratum for stratum in strata if min(map(len, stratum)) >= MIN_RECORDS]
    figures = [
        cross_fitted(*sides, streams.at("folds", index).generator())
        for index, sides in enumerate(known)
    ]
    whole = stratified(figures)
    if whole is None:
        none = Figure.unknown(f"fewer than {MIN_RECORDS} members or non-members")
        members = sum(len(inside) for inside, _ in strata)
        others = sum(len(outside) for _, outside in strata)
        return AttackMetrics(none, none, none, none, members, others)
    return AttackMetrics(
        balanced_accuracy=Figure.share(whole.risk, whole.standard_error),
        auc=auc_figure(known),
        tpr_at_1_percent=tpr_at(0.01, known),
        tpr_at_01_percent=tpr_at(0.001, known),
        members=whole.members,
        non_members=whole.non_members,
    )


def tpr_at(fpr: float, strata: Sequence[Sides]) -> Figure:
    """Return the share of members above all but `fpr` of their group's non-members.

    Unknown below 10 / fpr non-members in some group: too few would set the threshold. Its
    interval counts what is not known of the threshold, too: so many non-members may have
    been above the true one as a binomial count allows.
    """
    from scipy.stats import binom

    least = round(10 / fpr)
    fewest = min((len(others) for _, others in strata), default=0)
    if fewest < least:
        return Figure.unknown(
            f"a false positive rate of {fpr:.1%} needs at least {least:,} "
            f"non-members of each group, found {fewest:,}"
        )
    members = sum(len(inside) for inside, _ in strata)

    def hits(accused: Callable[[int], int]) -> int:
        return sum(_hits(accused(len(sides[1])), sides) for sides in strata)

    hits_at_fpr, tail = hits(lambda n: _accused(fpr, n)), (1 - LEVEL) / 2
    fewer = hits(lambda n: int(binom.ppf(tail, n, fpr)) - 1)
    more = hits(lambda n: int(binom.ppf(1 - tail, n, fpr)))
    low, high = clopper_pearson(fewer, members)[0], clopper_pearson(more, members)[1]
    return Figure(hits_at_fpr / members, low=low, high=high)


def tail_rate(strata: Sequence[Sides]) -> Figure:
    """Return the share of non-members with a higher loss than all but 1% of the members.

    Whatever was hard and is learnt has left the tail of high losses, where non-members
    still are. Without any reference model this ranks models by what the best attacks find
    at as low a rate of false accusations; the rate itself is smaller, a fifth to a third
    on small networks.

    Args:
        strata: minus the losses.

    References:
        Dodd, Krčo, Shilov, de Montjoye, The Tail Tells All, 2025; the 1% is covey's choice.
    """
    turned = tpr_at(0.01, [(-outside, -inside) for inside, outside in strata])
    return (
        turned
        if turned.value is not None
        else Figure.unknown(
            "the tail of losses needs at least 1,000 members and as many non-members"
        )
    )


def auc_figure(strata: Sequence[Sides]) -> Figure:
    """Return the groups' mean AUC A, weighted by members, with all AUCs that may give it.

        |A - theta| <= 1.96 sqrt(V(theta))

    V is Hanley and McNeil's variance, as many times larger as DeLong's is at A: theirs
    supposes that scores of both sides scatter alike. At A = 1 there is still an interval.

    References:
        Newcombe, Confidence intervals for an effect size measure based on the Mann-Whitney
        statistic, 2006, method 5.
        DeLong, DeLong, Clarke-Pearson, Comparing the areas under two or more correlated
        receiver operating characteristic curves, 1988.
    """
    from scipy.optimize import root_scalar

    sizes = [(len(inside), len(outside)) for inside, outside in strata]
    shares = np.array([n1 for n1, _ in sizes]) / sum(n1 for n1, _ in sizes)
    areas = [auc(*sides) for sides in strata]
    area = float(shares @ areas)

    def variance(*thetas: float) -> float:
        errors = (hanley_mcneil(theta, *n) for theta, n in zip(thetas, sizes, strict=True))
        return float(shares**2 @ [error**2 for error in errors])

    spread = max(variance(*areas), float(shares**2 @ [_delong(*sides) for sides in strata]))
    shape = variance(*[area] * len(sizes))
    wider = spread / shape if shape else 1.0

    def beyond(theta: float) -> float:
        return abs(area - theta) - Z * np.sqrt(wider * variance(*[theta] * len(sizes)))

    def end(farthest: float) -> float:
        near = area + np.copysign(1e-9, farthest - area)  # at 0 and 1 themselves nothing varies
        if area == farthest or beyond(near) >= 0:
            return area
        return float(root_scalar(beyond, bracket=(near, farthest)).root)

    return Figure(area, float(np.sqrt(spread)), end(0.0), end(1.0))


def _delong(inside: Float[ndarray, " members"], outside: Float[ndarray, " others"]) -> float:
    """Return the variance of an AUC by how each record's share of won pairs scatters."""

    def won(side: ndarray, other: ndarray) -> ndarray:
        other = np.sort(other)
        below = np.searchsorted(other, side, "left") + np.searchsorted(other, side, "right")
        return below / (2 * len(other))

    pairs = ((inside, outside), (outside, inside))
    return sum(float(won(*pair).var(ddof=1)) / len(pair[0]) for pair in pairs)


def roc(strata: Sequence[Sides]) -> tuple[tuple[float, float], ...]:
    """Return (FPR, TPR), from 1 / non-members of the smallest group up to (1, 1)."""
    fewest = min((len(others) for _, others in strata), default=0)
    members = sum(len(inside) for inside, _ in strata)
    if not fewest or not members:
        return ()
    counts = np.unique(np.geomspace(1, fewest, ROC_POINTS).round()) / fewest
    return tuple(
        (float(fpr), sum(_hits(_accused(fpr, len(s[1])), s) for s in strata) / members)
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


def _accused(fpr: float, non_members: int) -> int:
    return min(int(fpr * non_members + 1e-9), non_members)


def _hits(accused: int, sides: Sides) -> int:
    """Count the members above the threshold that accuses at most so many of the others."""
    inside, others = sides
    if accused >= len(others):
        return len(inside)
    return int(np.sum(inside > np.sort(others)[::-1][accused])) if accused >= 0 else 0


def with_extremes(
    estimate: RiskEstimate, inside: Sequence[Float[ndarray, " _"]], outside: Float[ndarray, " _"]
) -> RiskEstimate:
    """Return the estimate with what its mean hides: the surest 1%, and the worst client.

    As it is where there are too few records of either side.

    Args:
        estimate: of an attack with these scores.
        inside: of each client's members.
        outside: of all non-members.
    """
    own = [scores for scores in inside if len(scores) >= MIN_RECORDS]
    if not own or len(outside) < MIN_RECORDS:
        return estimate
    together = np.concatenate(own)
    accepted = np.quantile(outside, 1 - ACCUSED, method="inverted_cdf")
    surely = float((together > accepted).mean())
    threshold = best_threshold(together, outside)
    accused = float((outside >= threshold).mean())
    worst = max(float((scores >= threshold).mean()) for scores in own)
    return replace(estimate, tpr_at_1=surely, worst_client=(worst + 1 - accused) / 2)
