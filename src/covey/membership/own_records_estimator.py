"""Risk that every client measures on its own records, beside what other models say."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from covey.data.examples import Client
from covey.engine.protocol import ScoringJob
from covey.membership.attacks import auc, cross_fitted
from covey.membership.base import RiskContext
from covey.membership.client_estimator import ClientEstimator, able_to_judge
from covey.membership.estimates import RiskEstimate, estimate_of
from covey.rng import Streams
from covey.types import Handle, Params

__all__ = ["OwnRecordsEstimator"]


class OwnRecordsEstimator(ClientEstimator):
    """Let each client attack its own records, each judged by how hard it is.

    A record's score is its mean loss under the other clusters' models, which the client
    did not train, less its loss under this one: a hard record that this model knows was
    learnt by heart. The client's held-out examples are the non-members. Nothing is sent,
    and no model is asked that the client does not receive anyway.

    References:
        Watson, Guo, Cormode, Sablayrolles, On the Importance of Difficulty Calibration in
        Membership Inference Attacks, 2022.
    """

    note: ClassVar[str] = (
        "Each client judged the risk of its own records and told nobody: there is no risk "
        "to show before the audit at the end."
    )

    def judge(
        self,
        models: tuple[Params, ...],
        cohort: Sequence[Client],
        context: RiskContext,
        streams: Streams,
    ) -> dict[Handle, list[RiskEstimate | None]]:
        """Score all clients and models at once."""
        found: dict[Handle, list[RiskEstimate | None]] = {
            client.handle: [None] * len(models) for client in cohort
        }
        able = able_to_judge(cohort)
        sides = [side for c in able for side in (c.train, c.holdout)]
        jobs = [ScoringJob(model, side) for side in sides for model in models]
        scored = iter(context.engine.score(jobs))
        for client in able:
            losses = [
                np.stack([next(scored).losses.double().numpy() for _ in models])
                for _ in range(2)
            ]
            at = streams.at("own records", client.name)
            found[client.handle] = [
                _estimate(losses, j, at.at(j)) for j in range(len(models))
            ]
        return found


def _estimate(
    losses: Sequence[ndarray], cluster: int, streams: Streams
) -> RiskEstimate | None:
    """Return the risk in one cluster, from the losses (models, records) of both sides.

    None where a model answers with no number, or all are alike, as a warm start leaves
    them: then nothing is known, and that is no low risk.
    """
    if not all(np.isfinite(side).all() for side in losses):
        return None
    inside, outside = (_scores(side, cluster) for side in losses)
    if not (np.ptp(inside) or np.ptp(outside)):
        return None
    rates = cross_fitted(inside, outside, streams.generator())
    return estimate_of(rates, auc(inside, outside))


def _scores(
    losses: Float[ndarray, "models records"], cluster: int
) -> Float[ndarray, " records"]:
    others = np.delete(losses, cluster, axis=0)
    hard = others.mean(axis=0) if len(others) else 0.0
    return hard - losses[cluster]
