"""A loss of a user's own, which wrong labels pull at less than at the cross-entropy."""

from torch import Tensor

from covey import Loss


class GeneralizedCrossEntropy(Loss):
    """(1 - p_y^q) / q: the cross-entropy as q goes to 0, the absolute error at q = 1.

    References:
        Zhang, Sabuncu, Generalized Cross Entropy Loss for Training Deep Neural Networks
        with Noisy Labels, 2018.
    """

    tasks = ("multiclass",)

    q: float = 0.7

    def losses(self, outputs: Tensor, labels: Tensor) -> Tensor:
        p = outputs.softmax(dim=1).gather(1, labels[:, None])[:, 0]
        return (1 - p**self.q) / self.q


def generalized(outputs: Tensor, labels: Tensor, q: float = 0.7) -> Tensor:
    """Return the same losses, as a plain function."""
    return GeneralizedCrossEntropy(q=q).losses(outputs, labels)
