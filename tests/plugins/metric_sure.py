"""A metric of a user's own: how often a model is sure and right."""

from torch import Tensor

import covey


class SureAndRight(covey.Metric):
    """The share of examples whose class has at least this probability."""

    tasks = ("multiclass",)
    at_least: float = 0.5

    def measure(self, scored: covey.Scored, labels: Tensor) -> Tensor:
        assert scored.log_probs is not None
        return scored.log_probs.exp().gather(1, labels[:, None])[:, 0] >= self.at_least
