"""What each shadow shows: how its members stand out, and if it is like its target."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy import ndarray

from covey.data.examples import Examples
from covey.engine.protocol import Engine, Scored, ScoringJob
from covey.membership.assessment import Target
from covey.membership.attacks import auc, best_threshold, rates_at, scores_of
from covey.membership.estimates import (
    MIN_RECORDS,
    RiskEstimate,
    estimate_of,
    stratified,
)
from covey.membership.extrapolation import moderated
from covey.membership.shadow_federation import ShadowData, ShadowFederation

__all__ = [
    "Accuracies",
    "ShadowResult",
    "accuracy_mismatch",
    "evaluate_shadow",
    "gap_corrected",
    "leave_one_out",
    "target_accuracies",
]


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
        accuracies=Accuracies(
            train=_accuracy(inside),
            test=_accuracy(outside),
        ),
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
    estimates: Sequence[RiskEstimate],
    results: Sequence[ShadowResult],
    target: Accuracies,
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
        (
            "test",
            [each.test for each in shadows],
            target_accuracies.test,
            num_non_members,
        ),
    ):
        sampling = float(np.sqrt(target * (1 - target) / count))
        error = moderated(shadow_accuracies, sampling) * np.sqrt(
            1 + 1 / len(shadow_accuracies)
        )
        allowed, mean = max(0.03, 2 * error), float(np.mean(shadow_accuracies))
        if abs(mean - target) > allowed:
            return (
                f"the shadows' {side} accuracy is {mean:.3f} and the cluster model's "
                f"{target:.3f}, further apart than {allowed:.3f}"
            )
    return ""
