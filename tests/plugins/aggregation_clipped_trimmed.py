"""A trimmed mean of updates that were shortened to their median norm before."""

from collections.abc import Sequence
from statistics import median

import torch
from torch import Tensor

from covey import ClientUpdate, ClusterwiseAggregation


class ClippedTrimmedMean(ClusterwiseAggregation):
    """u_i <- min(1, m / |u_i|) u_i, m the median norm; then the mean without the extremes."""

    cut: int = 1

    @property
    def fewest(self) -> int:
        return 2 * self.cut + 1

    def combined(self, updates: Sequence[ClientUpdate]) -> dict[str, Tensor]:
        norms = [
            float(torch.cat([value.flatten() for value in update.update.values()]).norm())
            for update in updates
        ]
        shares = [min(1.0, median(norms) / norm) if norm else 1.0 for norm in norms]
        middle = slice(self.cut, len(updates) - self.cut)
        return {
            name: torch.stack(
                [share * update.update[name] for share, update in zip(shares, updates, strict=True)]
            )
            .sort(dim=0)
            .values[middle]
            .mean(dim=0)
            for name in updates[0].update
        }
