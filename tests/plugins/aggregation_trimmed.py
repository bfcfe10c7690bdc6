"""A trimmed mean of a user's own, which trims a number of clients instead of a share."""

from collections.abc import Sequence

import torch

from covey import ClientUpdate, ClusterwiseAggregation


class TrimmedByNumber(ClusterwiseAggregation):
    """The coordinate-wise mean without the `cut` largest and smallest values."""

    cut: int = 1

    @property
    def fewest(self) -> int:
        return 2 * self.cut + 1

    def combined(self, updates: Sequence[ClientUpdate]) -> dict[str, torch.Tensor]:
        trimmed = {}
        for name in updates[0].update:
            values = torch.stack([update.update[name] for update in updates])
            middle = values.sort(dim=0).values[self.cut : len(updates) - self.cut]
            trimmed[name] = middle.mean(dim=0) if middle.is_floating_point() else middle[-1]
        return trimmed
