"""A trimmed mean of clipped updates: no client is far out, or moves the model by much."""

import math
from collections.abc import Sequence

import torch

from covey import ClientUpdate, ClusterwiseAggregation


class ClippedTrimmedMean(ClusterwiseAggregation):
    """Scale every update to an L2 norm of at most `bound`; drop the `cut` extremes; mean."""

    bound: float = math.inf
    cut: int = 1

    @property
    def fewest(self) -> int:
        return 2 * self.cut + 1

    def combined(self, updates: Sequence[ClientUpdate]) -> dict[str, torch.Tensor]:
        rows = [dict(each.update) for each in updates]
        norms = [math.sqrt(sum(float(v.square().sum()) for v in row.values())) for row in rows]
        factors = torch.tensor([min(1.0, self.bound / max(norm, 1e-12)) for norm in norms])
        found = {}
        for name in rows[0]:
            values = torch.stack([f * row[name] for f, row in zip(factors, rows, strict=True)])
            found[name] = values.sort(dim=0).values[self.cut : len(rows) - self.cut].mean(dim=0)
        return found
