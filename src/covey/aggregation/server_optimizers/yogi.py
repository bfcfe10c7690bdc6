"""Federated averaging with a step size per coordinate that grows slowly (FedYogi)."""

from torch import Tensor

from covey.aggregation.server_optimizers.adam import AdaptiveOptimizer

__all__ = ["Yogi"]


class Yogi(AdaptiveOptimizer):
    """FedYogi: v_j <- v_j - (1 - beta_2) d^2 sign(v_j - d^2).

    Unlike Adam's, the second moment changes by no more than the latest square: steps do
    not grow at once after a few small changes.

    References:
        Reddi et al., Adaptive Federated Optimization, 2021, Algorithm 2.
        Zaheer et al., Adaptive Methods for Nonconvex Optimization, 2018.
    """

    def second(self, variance: Tensor, square: Tensor) -> Tensor:
        """Return the second moment, moved towards the square by a share of it."""
        return variance - (1 - self.beta_2) * square * (variance - square).sign()
