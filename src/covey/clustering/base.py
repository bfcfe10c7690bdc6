"""What a cluster selection is, and the built-in ones as components."""

from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor

from covey.clustering.min_cluster_size import rebalanced, select_priced
from covey.clustering.selection import (
    SelectionInputs,
    select_by_loss,
    select_by_threshold,
    select_weighted,
    weighted_cost,
)
from covey.components.capability import Capability, Claim
from covey.components.component import Component
from covey.components.section import Share

__all__ = [
    "ByLoss",
    "ByThreshold",
    "ClusterSelection",
    "Priced",
    "Rebalanced",
    "Weighted",
]


class ClusterSelection(Component):
    """How clients take their clusters; the fields of a subclass are its options.

    Attributes:
        weighs: whether it looks at the clients' weights on the risk (beta).
    """

    weighs: ClassVar[bool] = True

    def select(self, inputs: SelectionInputs) -> Int[Tensor, " clients"]:
        """Return an available cluster for every client."""
        raise NotImplementedError

    def cost(self, inputs: SelectionInputs) -> Float[Tensor, "clients clusters"] | None:
        """Return what `select` minimises, if it is the lowest cost; 0 or more."""
        del inputs

    @property
    def kept_share(self) -> float | None:
        """The share of the clients that prices keep in every cluster; None: no prices."""
        return None


class ByLoss(ClusterSelection):
    """The lowest loss (IFCA)."""

    weighs: ClassVar[bool] = False

    def select(self, inputs: SelectionInputs) -> Int[Tensor, " clients"]:
        """Return the cluster with the lowest loss."""
        return select_by_loss(inputs)

    def cost(self, inputs: SelectionInputs) -> Float[Tensor, "clients clusters"]:
        """Return the losses."""
        return inputs.losses


class Weighted(ClusterSelection):
    """The best alpha * loss + beta * risk (IFCA-MIR)."""

    def select(self, inputs: SelectionInputs) -> Int[Tensor, " clients"]:
        """Return the cluster with the lowest cost."""
        return select_weighted(inputs)

    def cost(self, inputs: SelectionInputs) -> Float[Tensor, "clients clusters"]:
        """Return alpha * loss + beta * risk."""
        return weighted_cost(inputs)


class ByThreshold(ClusterSelection):
    """The lowest loss among clusters whose risk the client accepts, else the safest."""

    rules_out = frozenset({Capability.COST_CHOICE})
    weighs: ClassVar[bool] = False

    def select(self, inputs: SelectionInputs) -> Int[Tensor, " clients"]:
        """Return the best acceptable cluster."""
        return select_by_threshold(inputs)


class _Keeping(ClusterSelection):
    """A selection that keeps a share of the clients in every cluster."""

    requires = frozenset({Capability.ALL_LOSSES})
    rules_out = frozenset({Capability.COST_CHOICE})
    weighs: ClassVar[bool] = False

    target_share: Share = 0.0

    def claim(self, part: str) -> Claim:
        """Return what it needs, and how it is lost."""
        return Claim(part, self.requires, self.rules_out)


class Priced(_Keeping):
    """A subsidy per cluster, adapted by dual ascent (`select_priced`)."""

    def select(self, inputs: SelectionInputs) -> Int[Tensor, " clients"]:
        """Return what clients choose at the posted prices."""
        return select_priced(inputs, target_share=self.target_share)

    @property
    def kept_share(self) -> float:
        """The share that the subsidies keep."""
        return self.target_share


class Rebalanced(_Keeping):
    """Choices by threshold, then moves at random (RR-Cluster, `rebalanced`)."""

    def select(self, inputs: SelectionInputs) -> Int[Tensor, " clients"]:
        """Return the choices after the moves."""
        return rebalanced(select_by_threshold, self.target_share)(inputs)
