"""Ditto: FedAvg, beside which every client keeps a model of its own."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from torch import Tensor

from covey.algorithms.fedavg import FedAvg
from covey.components.section import NotNegative
from covey.engine.recipe import Objective

__all__ = ["Ditto"]


class NearShared(Objective):
    """Pull a client's own model towards the shared one: lam (v - theta)."""

    elementwise = True

    lam: NotNegative

    def correction(
        self,
        weights: Sequence[Tensor],
        start: Sequence[Tensor],  # noqa: ARG002 - of the own model
        memory: Mapping[str, Sequence[Tensor]],
    ) -> Sequence[Tensor] | None:
        """Return lam (v - theta); nothing where lam is 0, to the bit."""
        if self.lam == 0:
            return None
        pairs = zip(weights, memory["shared"], strict=True)
        return [self.lam * (own - shared) for own, shared in pairs]


class Ditto(FedAvg):
    """Let every client train a model of its own too, near the one that all share.

    theta <- FedAvg;  v_i <- argmin_v  f_i(v) + lam / 2 ||v - theta||^2

    v_i takes as many steps as the shared model's training, from where it last ended; a
    client that comes for the first time begins at the shared model. It never leaves the
    client, and its accuracy is the client's. Risk is measured of theta, which is all that
    anybody else sees. With lam = 0 every client trains alone; theta is FedAvg's in any
    case, to the bit. lam above 2 / learning_rate makes v_i diverge.

    References:
        Li, Hu, Beirami, Smith, Ditto: Fair and Robust Federated Learning Through
        Personalization, 2021, Algorithm 1.
    """

    sends_sums: ClassVar[bool] = True

    lam: NotNegative = 0.1

    def personal(self) -> Objective:
        """Return the pull towards the shared model."""
        return NearShared(lam=self.lam)
