"""FedProx: FedAvg whose clients stay near the model that they were sent."""

from typing import ClassVar

from covey.algorithms.fedavg import FedAvg
from covey.components.section import NotNegative
from covey.engine.objectives import Proximal
from covey.engine.recipe import Objective

__all__ = ["FedProx"]


class FedProx(FedAvg):
    """Let every client minimise its loss and a pull towards the shared model.

    theta_i <- argmin_w  f_i(w) + mu / 2 ||w - theta||^2;  theta <- mean of theta_i

    With mu = 0 this is FedAvg, to the bit.

    References:
        Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith, Federated Optimization in
        Heterogeneous Networks, 2020, Algorithm 2.
    """

    sends_sums: ClassVar[bool] = True

    mu: NotNegative = 0.01

    def objective(self) -> Objective:
        """Return the pull."""
        return Proximal(mu=self.mu)
