"""A user's own estimator of risk: how much surer a model is of what it has seen."""

from math import sqrt
from typing import ClassVar

import numpy as np

import covey


class ConfidenceGap(covey.RiskEstimator):
    """Attack by a coin: say "member" with the probability p_y ** sharpness.

    TPR is the mean over members, TNR one minus the mean over held-out examples, so that

        risk = 1/2 + (mean over members - mean over held-out) / 2

    Attributes:
        sharpness: how much more a sure answer counts.
        fewest: examples on each side below which nothing is said.
    """

    sharpness: float = 1.0
    fewest: int = 10

    note: ClassVar[str] = "Risk is that of an attack by a coin, a lower bound."

    def estimate(
        self, target: covey.Target, context: covey.RiskContext, streams: covey.Streams
    ) -> covey.RiskEstimate:
        sure = [
            self._confidence(target, context, [client.train for client in target.members]),
            self._confidence(target, context, [c.holdout for c in target.members]),
        ]
        inside, outside = map(len, sure)
        if min(inside, outside) < self.fewest:
            return covey.RiskEstimate.unknown(f"{inside} members and {outside} held-out examples")
        return covey.RiskEstimate(
            covey.Figure(
                0.5 + (sure[0].mean() - sure[1].mean()) / 2,
                error=sqrt(sum(values.var() / len(values) for values in sure)) / 2,
            ),
            members=inside,
            non_members=outside,
            rests_on=f"a coin with sharpness {self.sharpness:g}",
        )

    def _confidence(self, target, context, sets):  # pyright: ignore
        losses = context.losses(target.params, sets)
        return np.exp(-self.sharpness * np.concatenate([np.empty(0), *losses]))
