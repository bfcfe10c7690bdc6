"""The loss that all engines minimise and report."""

from jaxtyping import Float, Int
from torch import Tensor, nn

__all__ = ["nll_losses"]


def nll_losses(
    outputs: Float[Tensor, "batch classes"], labels: Int[Tensor, " batch"]
) -> Float[Tensor, " batch"]:
    """Return each example's negative log-likelihood in nats: `-log p(label | input)`."""
    # Log-softmax leaves log-probabilities as they are, so cross-entropy is right for
    # models that end in log-softmax and for models that return logits.
    return nn.functional.cross_entropy(outputs.float(), labels, reduction="none")
