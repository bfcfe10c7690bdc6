"""Risk figures from shadow federations: the papers' red team, made to match its target.

A shadow model trained centrally, or on another number of examples, reports the risk of
another recipe. So each shadow is a federation: pseudo-clients with the sizes and groups
of the cluster's own, drawn from the server's pool, play the same rounds with the same
merge. It is kept, and plays on, as long as the cluster keeps its clients.
"""

from dataclasses import dataclass

import numpy as np
import torch

from covey.data.examples import Examples
from covey.engine.protocol import Engine, Scored, ScoringJob
from covey.redteam.assessment import (
    Assessment,
    Profile,
    RedTeam,
    ShadowFederation,
    Target,
    stated,
    withheld,
)
from covey.redteam.attacks import Rates, auc, best_threshold, rates_at, scores_of
from covey.redteam.federation import (
    Laboratory,
    advanced,
    kept,
    profile_of,
    pseudo_clients,
)
from covey.redteam.figures import FEWEST, Figure
from covey.rng import Streams

__all__ = ["shadow"]


@dataclass(frozen=True, slots=True, eq=False)
class _Trial:
    """One shadow's scores on its own members and non-members, and its accuracies."""

    inside: np.ndarray
    outside: np.ndarray
    train_accuracy: float
    test_accuracy: float
    target_test_accuracy: float


def shadow(engine: Engine, laboratory: Laboratory) -> RedTeam:
    """Attack shadow federations of the cluster's size and kind (Algorithm 2, TrainMIA).

    The threshold that judges a shadow is fitted on the other shadows. The figure is
    withheld when the shadows' train or test accuracy is further than 3 points (or 2 SE)
    from the cluster's, as reported by its clients and seen on the pool.
    """

    def assess(target: Target, _: Streams) -> Assessment:
        profile = profile_of(target)
        reason = _too_small(profile, laboratory)
        if reason:
            return Assessment(withheld(target, "shadow", reason))
        shadows = tuple(
            advanced(each, target.round_index, laboratory)
            for each in kept(target, profile, laboratory)
        )
        trials = [_trial(engine, each, target, laboratory) for each in shadows]
        mismatch = _mismatch(engine, target, trials)
        if mismatch:
            return Assessment(withheld(target, "shadow", mismatch), shadows)
        figure = _leave_one_out(trials)
        reason = f"{len(trials)} shadow federations of {len(profile)} pseudo-clients"
        return Assessment(stated(target, "shadow", figure, reason), shadows)

    return assess


def _too_small(profile: Profile, laboratory: Laboratory) -> str:
    members, pool = sum(size for _, size in profile), len(laboratory.pool)
    if not members:
        return "no client has chosen this cluster"
    if pool >= members + FEWEST:
        return ""
    return (
        f"shadows as large as the cluster need {members} examples and at least {FEWEST} "
        f"more, and the server's pool holds {pool}"
    )


def _trial(
    engine: Engine,
    federation: ShadowFederation,
    target: Target,
    laboratory: Laboratory,
) -> _Trial:
    members, others = map(_joined, pseudo_clients(federation, laboratory))
    inside, outside, seen = engine.score(
        [
            ScoringJob(federation.params, members),
            ScoringJob(federation.params, others),
            ScoringJob(target.params, others),
        ]
    )
    return _Trial(
        inside=scores_of(inside.losses.double().numpy()),
        outside=scores_of(outside.losses.double().numpy()),
        train_accuracy=_accuracy(inside, members),
        test_accuracy=_accuracy(outside, others),
        target_test_accuracy=_accuracy(seen, others),
    )


def _joined(sets: tuple[Examples, ...]) -> Examples:
    return Examples(
        torch.cat([each.inputs for each in sets]),
        torch.cat([each.labels for each in sets]),
    )


def _accuracy(scored: Scored, examples: Examples) -> float:
    return float((scored.predictions == examples.labels).double().mean())


def _mismatch(engine: Engine, target: Target, trials: list[_Trial]) -> str:
    """Say how the shadows fail to behave like the cluster's model; "" if they do."""
    reported = _joined(tuple(client.train for client in target.members))
    (scored,) = engine.score([ScoringJob(target.params, reported)])
    pairs = {
        "train": (
            np.mean([trial.train_accuracy for trial in trials]),
            _accuracy(scored, reported),
            len(reported),
        ),
        "test": (
            np.mean([trial.test_accuracy for trial in trials]),
            np.mean([trial.target_test_accuracy for trial in trials]),
            min(len(trial.outside) for trial in trials),
        ),
    }
    for side, (theirs, own, count) in pairs.items():
        allowed = max(0.03, 2 * np.sqrt(2 * own * (1 - own) / count))
        if abs(theirs - own) > allowed:
            return (
                f"the shadows' {side} accuracy is {theirs:.3f} and the cluster model's "
                f"{own:.3f}, further apart than {allowed:.3f}"
            )
    return ""


def _leave_one_out(trials: list[_Trial]) -> Figure:
    """Judge each shadow by a threshold that was fitted on the others.

    SE = sd over shadows * sqrt(1 + 1/n): the target is one more draw. With one shadow
    its own threshold judges it, and the sampling error is all that is known.
    """
    rates = [_judged(trials, index) for index in range(len(trials))]
    risks = [each.accuracy for each in rates]
    sampling = float(np.mean([each.standard_error for each in rates]))
    n = len(trials)
    spread = float(np.std(risks, ddof=1) * np.sqrt(1 + 1 / n)) if n > 1 else 0.0
    return Figure(
        risk=float(np.mean(risks)),
        standard_error=max(spread, sampling),
        auc=float(np.mean([auc(t.inside, t.outside) for t in trials])),
        members=rates[0].members,
        non_members=rates[0].non_members,
    )


def _judged(trials: list[_Trial], index: int) -> Rates:
    others = [t for i, t in enumerate(trials) if i != index] or trials
    threshold = best_threshold(
        np.concatenate([t.inside for t in others]),
        np.concatenate([t.outside for t in others]),
    )
    return rates_at(threshold, trials[index].inside, trials[index].outside)
