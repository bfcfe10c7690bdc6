"""No measured risk at all."""

from typing import ClassVar

from covey.components.capability import Capability
from covey.membership.assessment import Target
from covey.membership.base import RiskContext, RiskEstimator
from covey.membership.estimates import Finding, Withheld
from covey.rng import Streams

__all__ = ["NoEstimator"]


class NoEstimator(RiskEstimator):
    """Measure nothing: clients know no risk, and choose without one."""

    requires: ClassVar[frozenset[Capability]] = frozenset()
    rules_out: ClassVar[frozenset[Capability]] = frozenset({Capability.MEASURED_RISK})

    def estimate(
        self,
        target: Target,  # noqa: ARG002
        context: RiskContext,  # noqa: ARG002
        streams: Streams,  # noqa: ARG002
    ) -> Finding:
        """Return that there is none."""
        return Withheld("nobody measures it")
