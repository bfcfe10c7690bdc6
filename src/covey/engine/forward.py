"""A model's answer to a batch: foreign code, whose failures are told as the model's."""

from collections.abc import Callable

from jaxtyping import Float, Shaped
from torch import Tensor, nn

from covey.errors import CoveyError, ModelError
from covey.models import WHOLE

__all__ = ["model_outputs"]


def model_outputs(
    module: nn.Module,
    inputs: Shaped[Tensor, "batch ..."],
    call: Callable[[Tensor], object] | None = None,
) -> Float[Tensor, "batch outputs"]:
    """Return a model's outputs.

    Args:
        module: the model.
        inputs: what it sees.
        call: how it is called, where that is not `module(inputs)`.

    Raises:
        ModelError: it raised, or its outputs are no row per example.
    """
    name, batch = type(module).__name__, tuple(inputs.shape)
    try:
        outputs = (call or module)(inputs)
    except CoveyError:
        raise
    except Exception as error:
        if "Expected more than 1 value per channel" in str(error):
            raise ModelError(
                f"The model {name} has a BatchNorm, which needs two examples in every "
                f"batch that it trains on, and met one of {batch[0]}. Set "
                f"train.drop_last = true, which leaves out a short last one; a client with "
                f"one example alone has to be left out, or use nn.GroupNorm."
            ) from error
        whole = "" if inputs.is_floating_point() else WHOLE
        raise ModelError(
            f"The model {name} raised {type(error).__name__} on a batch of shape {batch}: "
            f"{error}. Correct its forward.{whole}"
        ) from error
    if not isinstance(outputs, Tensor):
        raise ModelError(
            f"The model {name} must return one tensor, but it returned a "
            f"{type(outputs).__name__}. Return the outputs alone."
        )
    if outputs.dim() != 2 or len(outputs) != len(inputs):
        raise ModelError(
            f"The model {name} must return a row of outputs per example, but a batch of "
            f"shape {batch} gave {tuple(outputs.shape)}. Squeeze no axis of length 1, and "
            f"mix no examples."
        )
    return outputs
