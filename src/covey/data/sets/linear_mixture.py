"""A mixture of linear regressions, drawn: groups of clients whose best models are known.

References:
    Ghosh, Chung, Yin, Ramchandran, An Efficient Framework for Clustered Federated
    Learning, 2020, section 6.1: x ~ N(0, I_d), y = <x, theta*_j> + noise.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from covey import data
from covey.components.capability import Capability
from covey.components.section import NotNegative, Positive
from covey.data.base import DataSource

__all__ = ["LinearMixture"]


class LinearMixture(DataSource):
    """x ~ N(0, diag(spectrum)),   y = <x, theta*_j> + N(0, noise^2) for group j."""

    rules_out: ClassVar[frozenset[Capability]] = frozenset(
        {
            Capability.CLASS_LABELS,
            Capability.DATA_SET,
            Capability.IMAGES,
            Capability.SERVER_DATA,
        }
    )

    dimension: Positive = 10
    noise: NotNegative = 0.5
    separation: Annotated[float, Field(gt=0)] = 2.0
    condition: Annotated[float, Field(ge=1)] = 1.0

    @property
    def spec(self) -> data.MixtureSpec:
        """What the examples are drawn from."""
        return data.MixtureSpec(
            self.dimension, self.noise, self.separation, self.condition
        )

    def population(
        self, request: data.PopulationRequest
    ) -> tuple[data.Population, tuple[str, ...]]:
        """Draw every client's examples."""
        made = data.mixture_population(
            self.spec, request.spec, request.streams, request.preference
        )
        return made, ()
