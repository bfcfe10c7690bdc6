"""Risk that every client measures for itself, and tells nobody."""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
from numpy import ndarray

from covey.components.capability import Capability
from covey.data.examples import Client
from covey.engine.protocol import Engine, ScoringJob
from covey.membership.assessment import Target
from covey.membership.attacks import auc, cross_fitted, scores_of
from covey.membership.base import RiskContext, RiskEstimator
from covey.membership.copies import copied
from covey.membership.estimates import (
    MIN_RECORDS,
    Finding,
    RiskEstimate,
    Withheld,
    estimate_of,
    stratified,
)
from covey.rng import Streams
from covey.types import Handle, Params

__all__ = ["ClientEstimator", "self_estimates"]


class ClientEstimator(RiskEstimator):
    """Let each client attack its own members with its own holdout; nothing is sent."""

    requires: ClassVar[frozenset[Capability]] = frozenset(
        {Capability.HELD_OUT_EXAMPLES}
    )
    on_clients: ClassVar[bool] = True
    note: ClassVar[str] = (
        "Each client judged the risk for itself and told nobody: there is no risk to "
        "show before the audit at the end."
    )

    def estimate(
        self, target: Target, context: RiskContext, streams: Streams
    ) -> Finding:
        """Return what the members find, weighted by their examples."""
        rows = self.judge((target.params,), target.members, context, streams)
        known = [each for row in rows.values() for each in row if each is not None]
        found = stratified(known)
        if found is None:
            few = (
                f"no member has {MIN_RECORDS} examples and {MIN_RECORDS} held-out ones"
            )
            return Withheld(few)
        return replace(found, reason=f"{len(known)} members, each by itself")

    def judge(
        self,
        models: tuple[Params, ...],
        cohort: Sequence[Client],
        context: RiskContext,
        streams: Streams,
    ) -> dict[Handle, list[RiskEstimate | None]]:
        """Score all clients and models at once."""
        return self_estimates(context.engine, models, cohort, streams)


def _able_to_judge(cohort: Sequence[Client]) -> list[Client]:
    """Return who has enough examples on both sides, and holds out no copies."""
    enough = (c for c in cohort if min(len(c.train), len(c.holdout)) >= MIN_RECORDS)
    return [client for client in enough if not copied([client.train], [client.holdout])]


def self_estimates(
    engine: Engine,
    models: tuple[Params, ...],
    cohort: Sequence[Client],
    streams: Streams,
) -> dict[Handle, list[RiskEstimate | None]]:
    """Return what each client finds of each model on its own examples.

    The threshold is cross-fitted: the best one on 50 records of pure noise would already
    score 0.56. A client with 40 members and 10 held-out examples ends with a standard
    error of 0.10: this is for clients with hundreds of examples. A model that answers
    with a loss that is not finite has no estimate.
    """
    able = _able_to_judge(cohort)
    sides = [side for c in able for side in (c.train, c.holdout)]
    scored = engine.score([ScoringJob(m, side) for side in sides for m in models])
    losses = iter(each.losses.double().numpy() for each in scored)
    found: dict[Handle, list[RiskEstimate | None]] = {
        client.handle: [None] * len(models) for client in cohort
    }
    for client in able:
        inside, outside = ([next(losses) for _ in models] for _ in range(2))
        at = streams.at("own risk", client.name)
        found[client.handle] = [
            _estimate(both, at.at(j))
            for j, both in enumerate(zip(inside, outside, strict=True))
        ]
    return found


def _estimate(losses: tuple[ndarray, ndarray], streams: Streams) -> RiskEstimate | None:
    if not all(np.isfinite(side).all() for side in losses):
        return None
    both = scores_of(losses[0]), scores_of(losses[1])
    return estimate_of(cross_fitted(*both, streams.generator()), auc(*both))
