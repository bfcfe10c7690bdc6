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
from covey.membership.estimates import FEWEST, RiskEstimate, stratified
from covey.membership.extrapolation import moderated
from covey.membership.shadow_federation import Dealt, ShadowFederation

__all__ = [
    "Accuracies",
    "Trial",
    "adjusted",
    "behaviour",
    "left_out",
    "mismatch",
    "tried",
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
class Trial:
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


def tried(
    engine: Engine, federation: ShadowFederation, target: Target, hands: Dealt
) -> Trial:
    """Score a shadow, and the target beside it."""
    members = _by_group(federation, hands)
    groups, others = list(members), hands.others
    jobs = [
        ScoringJob(params, side[group])
        for params, side in (
            (federation.params, members),
            (federation.params, others),
            (target.params, others),
        )
        for group in groups
    ]
    scored, n = engine.score(jobs), len(groups)
    inside, outside, seen = scored[:n], scored[n : 2 * n], scored[2 * n :]
    return Trial(
        inside=_scores(groups, inside),
        outside=_scores(groups, outside),
        accuracies=Accuracies(
            train=_accuracy(inside),
            test=_accuracy(outside),
        ),
        target_test=_accuracy(seen),
    )


def _by_group(federation: ShadowFederation, hands: Dealt) -> Mapping[int, Examples]:
    groups: dict[int, list[Examples]] = {}
    for (group, _), examples in zip(federation.profile, hands.members, strict=True):
        groups.setdefault(group, []).append(examples)
    return {group: Examples.joined(sets) for group, sets in groups.items()}


def _scores(groups: Sequence[int], scored: Sequence[Scored]) -> Mapping[int, ndarray]:
    losses = [each.losses.double().numpy() for each in scored]
    return {g: scores_of(each) for g, each in zip(groups, losses, strict=True)}


def _accuracy(scored: Sequence[Scored]) -> float:
    right = [each.correct.double() for each in scored if each.correct is not None]
    return float(torch.cat(right).mean())


def left_out(trials: Sequence[Trial]) -> list[RiskEstimate]:
    """Judge each shadow by thresholds that were fitted on the others, group by group.

    One shadow alone is judged by its own. Empty where no group has enough records.
    """
    figures = [_judged(trials, index) for index in range(len(trials))]
    known = [figure for figure in figures if figure is not None]
    return known if len(known) == len(trials) else []


def _judged(trials: Sequence[Trial], index: int) -> RiskEstimate | None:
    others = [t for i, t in enumerate(trials) if i != index] or list(trials)
    own, strata = trials[index], list[RiskEstimate]()
    for group in own.inside:
        inside, outside = own.inside[group], own.outside[group]
        if min(len(inside), len(outside)) >= FEWEST:
            threshold = best_threshold(
                np.concatenate([t.inside[group] for t in others]),
                np.concatenate([t.outside[group] for t in others]),
            )
            rates = rates_at(threshold, inside, outside)
            strata.append(RiskEstimate.of(rates, auc(inside, outside)))
    return stratified(strata)


def behaviour(engine: Engine, target: Target, trials: Sequence[Trial]) -> Accuracies:
    """Return the target's accuracies: as its clients report, and as the pool shows."""
    own = [client.train for client in target.members]
    scored = engine.score([ScoringJob(target.params, each) for each in own])
    test = float(np.mean([trial.target_test for trial in trials]))
    return Accuracies(_accuracy(scored), test)


def adjusted(
    figures: Sequence[RiskEstimate], trials: Sequence[Trial], own: Accuracies
) -> list[RiskEstimate]:
    """Move each shadow's risk by as much as the gap attack's is lower than the target's.

    risk_k + gap risk of the target - gap risk of shadow k

    What the clients report makes the gap attack exact on the target itself; the shadows
    only tell by how much a loss threshold does better.
    """
    return [
        replace(figure, risk=figure.risk + own.gap_risk - trial.accuracies.gap_risk)
        for figure, trial in zip(figures, trials, strict=True)
    ]


def mismatch(own: Accuracies, trials: Sequence[Trial], members: int) -> str:
    """Say how the shadows fail to behave like a cluster's model; "" if they do.

    |mean of the shadows - target| > max(0.03, 2 SE), for the train and the test accuracy

    SE is that of one more draw: equal recipes on other examples do differ, and by how
    much, the shadows show.
    """
    shadows = [trial.accuracies for trial in trials]
    others = min(sum(map(len, trial.outside.values())) for trial in trials)
    for side, theirs, target, count in (
        ("train", [each.train for each in shadows], own.train, members),
        ("test", [each.test for each in shadows], own.test, others),
    ):
        sampling = float(np.sqrt(target * (1 - target) / count))
        error = moderated(theirs, sampling) * np.sqrt(1 + 1 / len(theirs))
        allowed, mean = max(0.03, 2 * error), float(np.mean(theirs))
        if abs(mean - target) > allowed:
            return (
                f"the shadows' {side} accuracy is {mean:.3f} and the cluster model's "
                f"{target:.3f}, further apart than {allowed:.3f}"
            )
    return ""
