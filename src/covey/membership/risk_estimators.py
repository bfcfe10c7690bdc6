"""Risk figures from the clients themselves: their counts, or (in simulations) the truth.

The papers' own source, shadow models, is in `covey.membership.shadow`.
"""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from covey.data.examples import Client, Examples
from covey.engine.protocol import Engine, ScoringJob
from covey.membership.assessment import Assessment, RedTeam, Target, stated, withheld
from covey.membership.attacks import auc, cross_fitted, scores_of
from covey.membership.estimates import FEWEST, Figure
from covey.membership.ground_truth import Reference, true_risk
from covey.membership.loss_histograms import auc_of_counts, loss_counts, rates_of_counts
from covey.rng import Streams
from covey.types import Handle, Params

__all__ = ["Count", "SelfJudge", "counting", "federated", "oracle", "self_judge"]

SelfJudge = Callable[
    [tuple[Params, ...], Sequence[Client], Streams], dict[Handle, list[Figure | None]]
]
"""What each client finds out about each model it receives, on its own side."""

Counts = Int[ndarray, "folds bins"]
Count = Callable[[Target, Streams], tuple[Counts, Counts]]
"""The sums of what members count (`loss_counts`): of their training and held-out losses."""


def federated(count: Count) -> RedTeam:
    """Ask every client for counts of its own losses; trusts no server, needs no shadow.

    Members and non-members come from the same clients, so they match by construction.
    """

    def assess(target: Target, streams: Streams) -> Assessment:
        inside, outside = count(target, streams)
        members, non_members = int(inside.sum()), int(outside.sum())
        sides = f"{members} members and {non_members} held-out examples of its clients"
        if min(members, non_members) < FEWEST:
            reason = f"{sides}, and at least {FEWEST} of each are needed"
            return Assessment(withheld(target, "federated", reason))
        rates = rates_of_counts(inside, outside)
        figure = Figure.of(rates, auc_of_counts(inside, outside))
        return Assessment(stated(target, "federated", figure, sides))

    return assess


def oracle(engine: Engine, reference: Reference) -> RedTeam:
    """Look at the real members and at matched non-members: for simulations only."""

    def assess(target: Target, streams: Streams) -> Assessment:
        truth = true_risk(engine, target.params, target.members, reference, streams)
        if truth is None:
            reason = f"fewer than {FEWEST} records on a side"
            return Assessment(withheld(target, "oracle", reason))
        reason = "the truth, which only a simulation knows"
        return Assessment(stated(target, "oracle", truth, reason))

    return assess


def self_judge(engine: Engine) -> SelfJudge:
    """Let each client attack its own members with its own holdout; nothing is sent.

    The threshold is cross-fitted: the best one on 50 records of pure noise would already
    score 0.56. A client with 40 members and 10 held-out examples ends with a standard
    error of 0.09: this source is for clients with hundreds of examples. A model that
    answers with a loss that is not finite has no figure.
    """

    def judge(
        models: tuple[Params, ...], cohort: Sequence[Client], streams: Streams
    ) -> dict[Handle, list[Figure | None]]:
        able = [c for c in cohort if min(len(c.train), len(c.holdout)) >= FEWEST]
        sides = [side for c in able for side in (c.train, c.holdout)]
        scored = engine.score([ScoringJob(m, side) for side in sides for m in models])
        losses = iter(each.losses.double().numpy() for each in scored)
        found: dict[Handle, list[Figure | None]] = {
            client.handle: [None] * len(models) for client in cohort
        }
        for client in able:
            inside, outside = ([next(losses) for _ in models] for _ in range(2))
            at = streams.at("own risk", client.name)
            found[client.handle] = [
                _own_figure(both, at.at(j))
                for j, both in enumerate(zip(inside, outside, strict=True))
            ]
        return found

    return judge


def _own_figure(losses: tuple[ndarray, ndarray], streams: Streams) -> Figure | None:
    if not all(np.isfinite(side).all() for side in losses):
        return None
    both = scores_of(losses[0]), scores_of(losses[1])
    return Figure.of(cross_fitted(*both, streams.generator()), auc(*both))


def counting(engine: Engine) -> Count:
    """Return how clients count, where their examples are at hand."""

    def count(target: Target, streams: Streams) -> tuple[Counts, Counts]:
        inside = {client: client.train for client in target.members}
        outside = {client: client.holdout for client in target.members}
        return (
            _counts(engine, target, inside, streams),
            _counts(engine, target, outside, streams),
        )

    return count


def _counts(
    engine: Engine, target: Target, sets: dict[Client, Examples], streams: Streams
) -> Counts:
    scored = engine.score([ScoringJob(target.params, each) for each in sets.values()])
    counts = [
        loss_counts(
            each.losses.double().numpy(),
            streams.at("folds", len(each.losses), client.name).generator(),
        )
        for each, client in zip(scored, sets, strict=True)
    ]
    return np.sum(counts, axis=0) if counts else np.zeros((1, 1), dtype=np.int64)
