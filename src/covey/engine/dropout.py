"""Dropout whose masks depend on the client's stream alone, on every engine.

torch draws masks from one global generator, so a mask would depend on what other clients drew
before. Here a generator of each training job draws them. Layers of dropout are replaced as
functions. Attention and recurrent layers draw inside one operation: below autograd, the random
operation itself gets the generator.

Nothing is drawn inside `vmap`. A forward pass of one client shows which masks a batch takes;
before every step the masks of each client are drawn from its own stream, in the order in which it
would draw them by itself, and passed in.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from covey.base.errors import ModelError
from covey.engine.protocol import TrainingJob
from covey.models.build import dropout_layers, fused_dropout_layers

MaskOf = Callable[[Tensor, tuple[int, ...], float], Tensor]

_REPRODUCIBLE = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)


def check_dropout(module: nn.Module) -> None:
    """Refuse dropout layers whose masks covey cannot draw from a client's stream."""
    for layer in dropout_layers(module):
        if type(layer) not in _REPRODUCIBLE:
            raise ModelError(
                f"Dropout layers must be nn.Dropout, nn.Dropout1d, nn.Dropout2d or nn.Dropout3d, "
                f"found {layer}: use nn.Dropout instead."
            )


def refuse_dropout(
    module: nn.Module, subject: str, remedy: str, *, fused_alone: bool = False
) -> None:
    """Refuse dropout layers whose masks would be drawn inside `vmap`.

    Args:
        module: the model.
        subject: what cannot have them, as the subject of a sentence.
        remedy: what to do.
        fused_alone: attention and recurrent layers that drop, where the masks of all other
            layers come from outside.
    """
    others = [] if fused_alone else dropout_layers(module)
    for layer in (*others, *fused_dropout_layers(module)):
        shown = str(layer)
        if isinstance(layer, (nn.MultiheadAttention, nn.RNNBase)):  # it may have layers of its own
            shown = f"{type(layer).__name__} with dropout {layer.dropout:g}"
        model = "whose dropout is in layers of its own" if fused_alone else "without dropout"
        raise ModelError(f"{subject} needs a model {model}, found {shown}: {remedy}")


def has_dropout(module: nn.Module) -> bool:
    """Return whether any layer draws masks in training."""
    return bool(dropout_layers(module) or fused_dropout_layers(module))


class SeededDropout(AbstractContextManager[None]):
    """A block, to enter around each forward pass, in which a job's masks are drawn."""

    def __init__(self, module: nn.Module, job: TrainingJob) -> None:
        fused = fused_dropout_layers(module)
        self._modes: list[TorchFunctionMode | TorchDispatchMode] = []
        if fused or dropout_layers(module):
            generator = mask_generator(job)

            def drawn(inputs: Tensor, shape: tuple[int, ...], kept: float) -> Tensor:
                return inputs.new_empty(shape).bernoulli_(kept, generator=generator)

            self._modes.append(MaskedDropout(drawn))
            self._modes += [_SeededDraws(generator)] if fused else []

    def __enter__(self) -> None:
        for mode in self._modes:
            mode.__enter__()

    def __exit__(self, *raised: Any) -> None:  # noqa: ANN401 - as a mode of torch takes it
        for mode in reversed(self._modes):
            mode.__exit__(*raised)


def mask_generator(job: TrainingJob) -> torch.Generator:
    """Return what the job's masks are drawn from, one after another."""
    seed = int(job.streams.at("dropout").generator().integers(2**63))
    return torch.Generator().manual_seed(seed)


class MaskedDropout(TorchFunctionMode):
    """Replaces torch's dropout functions: `mask` says what is kept.

    Args:
        mask: returns ones and zeros, from the inputs, the shape of the mask, which
            broadcasts to theirs, and the chance of a one.
    """

    masked_dims: Mapping[Callable[..., object], int | None] = MappingProxyType(
        {
            nn.functional.dropout: None,  # one coin per value
            nn.functional.dropout1d: 2,  # one coin per example and channel
            nn.functional.dropout2d: 2,
            nn.functional.dropout3d: 2,
        }
    )

    def __init__(self, mask: MaskOf) -> None:
        super().__init__()
        self._mask = mask

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> object:
        kwargs = kwargs or {}
        if func not in self.masked_dims or not kwargs["training"]:
            return func(*args, **kwargs)
        return self._dropped(args[0], kwargs["p"], self.masked_dims[func])

    def _dropped(
        self, inputs: Float[Tensor, "*shape"], p: float, dims: int | None
    ) -> Float[Tensor, "*shape"]:
        """Return `inputs * mask / (1 - p)`, mask ~ Bernoulli(1 - p)."""
        coins = tuple(inputs.shape[:dims])
        ones = (1,) * (inputs.dim() - len(coins))
        mask = self._mask(inputs, (*coins, *ones), 1 - p)
        return inputs * mask / ((1 - p) or 1)


class _SeededDraws(TorchDispatchMode):
    """Hands `generator` to every random operation that has none."""

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self._generator = generator

    def __torch_dispatch__(
        self,
        func: Any,  # noqa: ANN401 - an operation of torch, which has no public type
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> object:
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **kwargs)
        names = [argument.name for argument in func._schema.arguments]
        if "generator" not in names:
            raise ModelError(f"A model must draw by dropout alone, found {func}: use nn.Dropout.")
        arguments = dict(zip(names, args, strict=False)) | kwargs
        if arguments.get("generator") is None:
            arguments["generator"] = self._generator
        return func(**arguments)


@dataclass(frozen=True, slots=True)
class MaskShape:
    """One mask of a forward pass, of one client.

    Attributes:
        shape: the first axis is that of the examples in the batch, as a rule.
        kept: the chance of a one, in [0, 1].
    """

    shape: tuple[int, ...]
    kept: float


def mask_shapes(forward: Callable[[], object]) -> list[MaskShape]:
    """Return the masks that a forward pass takes, in order; nothing is drawn for it."""
    shapes: list[MaskShape] = []

    def listed(inputs: Tensor, shape: tuple[int, ...], kept: float) -> Tensor:
        shapes.append(MaskShape(shape, kept))
        return inputs.new_ones(shape)

    with MaskedDropout(listed):
        forward()
    return shapes


def drawn_masks(
    shapes: Sequence[MaskShape], generators: Sequence[torch.Generator], *, pinned: bool = False
) -> list[Bool[Tensor, "clients ..."]]:
    """Return the masks of one step, one client per generator.

    Coins are the same in every type; as bytes they are a quarter of what floats take.
    """
    masks: list[Tensor] = []
    for shape in shapes:
        size = (len(generators), *shape.shape)
        mask = torch.empty(size, dtype=torch.bool, pin_memory=pinned)
        for own, generator in zip(mask, generators, strict=True):
            own.bernoulli_(shape.kept, generator=generator)
        masks.append(mask)
    return masks


def handing_out(masks: Sequence[Tensor]) -> MaskedDropout:
    """Return a block, for one forward pass, in which dropout takes these masks in turn."""
    rest = iter(masks)
    return MaskedDropout(lambda _inputs, _shape, _kept: next(rest))
