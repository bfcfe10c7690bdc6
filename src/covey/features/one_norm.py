"""Features of one length: no record then adds more to a sum than another."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

__all__ = ["OneNorm"]

TINY = 1e-6


class OneNorm(nn.Module):
    """Each record's features less their own mean, scaled to one L2 norm.

    What all records have in common takes most of a norm, and tells no class: half of it
    is gone with the mean, which no other record enters.

    Args:
        features: what is scaled.
        norm: of every record; one whose features are all alike becomes 0.
    """

    def __init__(self, features: nn.Module, norm: float) -> None:
        super().__init__()
        self.features, self.norm = features, norm

    def forward(
        self, inputs: Float[Tensor, "batch ..."]
    ) -> Float[Tensor, "batch features"]:
        """Return the features at their norm."""
        found: Tensor = self.features(inputs)
        centred = found - found.mean(dim=1, keepdim=True)
        lengths = torch.linalg.vector_norm(centred, dim=1, keepdim=True)
        return centred * (self.norm / lengths.clamp(min=TINY))
