"""The risks that IFCA-MIR prints, put in place of measured ones: what its rule does with them.

References:
    Jung, Biswas, Palamidessi, IFCA-MIR, 2025, Table 2, IFCA on MNIST.
"""

from typing import ClassVar

from covey import Figure, RiskContext, RiskEstimate, RiskEstimator, Streams, Target
from covey.base.components import Share


class PrintedRisks(RiskEstimator):
    """Look at no model: a cluster of less than half of the clients is as risky as is printed.

    Attributes:
        minority: the risk of a cluster with fewer than half of the clients.
        majority: that of a larger one.
    """

    needs_client_data: ClassVar[bool] = False
    note: ClassVar[str] = (
        "Clients saw risks that the IFCA-MIR paper prints: they were measured on no model here."
    )

    minority: Share = 0.761
    majority: Share = 0.521

    def estimate(
        self,
        target: Target,
        context: RiskContext,
        streams: Streams,  # noqa: ARG002 - nothing is drawn
    ) -> RiskEstimate:
        """Return the printed figure, which is not calibrated, and steers."""
        if not target.members:
            return RiskEstimate.unknown("no client has chosen this cluster")
        is_small = 2 * len(target.members) < len(context.population_profile)
        figure = Figure(self.minority if is_small else self.majority, 0.0)
        rests_on = "printed in the IFCA-MIR paper, and measured on no model here"
        return RiskEstimate(figure, calibrated=False, steers=True, rests_on=rests_on)
