"""An objective of a user's own: stay near the start, by absolute distances."""

from collections.abc import Mapping, Sequence

from torch import Tensor

from covey import Objective


class AbsoluteDistance(Objective):
    """f(w) + mu ||w - start||_1, so that mu sign(w - start) is added to every gradient."""

    elementwise = True

    mu: float = 0.001

    def correction(
        self,
        weights: Sequence[Tensor],
        start: Sequence[Tensor],
        memory: Mapping[str, Sequence[Tensor]],
    ) -> list[Tensor]:
        return [
            self.mu * (value - before).sign() for value, before in zip(weights, start, strict=True)
        ]
