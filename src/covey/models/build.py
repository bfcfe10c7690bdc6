"""A model by name, class, function or instance, and what is refused."""

import copy
import inspect
from collections.abc import Callable, Collection, Mapping
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Shaped
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from covey.base.built_ins import built_in_name, component
from covey.base.components import Component, OwnFunction, Texts
from covey.base.errors import ConfigError, CoveyError, ModelError, blamed
from covey.base.names import Params, passed_again
from covey.base.params import STATISTICS, model_hash
from covey.base.rng import Streams
from covey.models import networks

_DROPOUTS = (
    nn.Dropout,
    nn.Dropout1d,
    nn.Dropout2d,
    nn.Dropout3d,
    nn.AlphaDropout,
    nn.FeatureAlphaDropout,
)

_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)

_INSTANCE_NORMS = (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)

_MASKS = "_covey_infinite_buffers"

NETWORKS = tuple(filter(None, map(built_in_name, vars(networks).values())))
"""The name of every shipped network."""


class ModelFactory(Component):
    """A model with settings that are checked: write `build`.

    A function or a class that returns an `nn.Module` will do as well; then the settings
    beside its name are its keyword arguments.

    Attributes:
        is_passed: whether the model is in a program, and in no later process.
        task: `multiclass`; `multilabel`: several labels of 0 or 1 per example, the loss is
            their mean binary cross-entropy, accuracy the share of labels that are right; the
            attacks of `covey audit` are withheld. `regression`: labels are numbers, the loss
            is half the squared error, and there is no accuracy; also no `shadow` or
            `selection_noise`. `tokens`: a class per token of a sequence, -100
            where there is padding; loss and accuracy are each example's mean over its other
            tokens; what `multilabel` lacks, and comparisons of groups, are withheld. None
            of them with `engine.name = "flower"`. Your own model returns a logit per label,
            one output, or (batch, tokens, classes).
        personal: patterns (`*.bn*`, `head.*`) of parameters and buffers that stay with each
            client: it trains them from where its own last ended, and its accuracy is with
            them. They are neither sent nor averaged, and risk is measured with the drawn ones.
    """

    is_passed: ClassVar[bool] = False

    task: Literal["multiclass", "multilabel", "regression", "tokens"] = "multiclass"
    personal: Texts = ()

    @classmethod
    def around(cls, function: Callable[..., Any], options: Mapping[str, Any]) -> "ModelFactory":
        """Return a network's class, or a function that makes one, as a model."""
        refuse_module(function, "ModelFactory")
        return ModelFunction.model_validate({"function": function, **options})

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        """Return a freshly initialised network.

        Args:
            input_shape: of one example, without the batch.
            num_classes: how many outputs it has.
        """
        raise NotImplementedError

    def build_for(self, input_shape: tuple[int, ...], num_classes: int, seed: int) -> Any:  # noqa: ANN401, ARG002
        """Return a freshly initialised network of the run with this seed.

        Override it where all of the run's models have something in common that is drawn.
        """
        return self.build(input_shape, num_classes)


def check_image(subject: str, input_shape: tuple[int, ...], side: int, remedy: str) -> None:
    """Refuse what is no image, or one whose height or width is below `side`.

    Raises:
        ModelError: naming who needs images, and the shape.
    """
    if len(input_shape) != 3 or min(input_shape[1:]) < side:
        raise ModelError(
            f"{subject} needs images (channels, height, width) of at least {side}x{side} pixels, "
            f"found inputs {input_shape}: {remedy}"
        )


def fused_dropout_layers(module: nn.Module) -> list[nn.Module]:
    """Return attention that drops its weights, and recurrent layers that drop in between.

    A recurrent network of one layer has nothing in between, whatever its `dropout` says.
    """
    return [
        layer
        for layer in module.modules()
        if (
            isinstance(layer, nn.MultiheadAttention)
            or (isinstance(layer, nn.RNNBase) and layer.num_layers > 1)
        )
        and layer.dropout > 0
    ]


def copied(module: nn.Module) -> nn.Module:
    """Return a deep copy.

    Raises:
        ModelError: the module holds what cannot be copied.
    """
    subject = f"A model must be one that copy.deepcopy can copy, but {type(module).__name__}"
    with blamed(ModelError, subject, "keep no results and no open files in it."):
        return copy.deepcopy(module)


def refuse_module(function: object, base: str) -> None:
    """Refuse a module where a function belongs that makes one.

    Raises:
        ConfigError: it is one.
    """
    if isinstance(function, nn.Module):
        raise ConfigError(
            f"must be a covey.{base} or a function that returns an nn.Module, found a "
            f"{type(function).__name__} itself: name a function that returns it."
        )


def made_module(what: str, make: Callable[[], object], remedy: str) -> nn.Module:
    """Return the module that a user's function makes.

    Args:
        what: the function, for messages, such as "model function resnet".
        make: calls it.
        remedy: what to do where it raises.

    Raises:
        ModelError: it raised, or returned something else.
    """
    with blamed(ModelError, f"Your {what}", remedy):
        module = make()
    if not isinstance(module, nn.Module):
        raise no_such_result(f"Your {what}", "an nn.Module", module)
    return module


def no_such_result(subject: str, wanted: str, result: object) -> ModelError:
    """Return what is raised where a user's own code returns something else than is wanted."""
    kind = type(result).__name__
    return ModelError(f"{subject} must return {wanted}, found a {kind}: return that alone.")


def factory_of(model: object) -> Callable[[], nn.Module]:
    """Return what builds a fresh module out of what a program passes as its model.

    A module is copied at once, and every call copies that copy: all have its weights.

    Raises:
        ModelError: now if it is neither a function nor a module; when called if the
            function raises or returns something else.
    """
    if isinstance(model, nn.Module):
        original = copied(model)
        return lambda: copied(original)
    if not callable(model):
        raise ModelError(
            f"model must be an nn.Module or a function without arguments that returns one, found a "
            f"{type(model).__name__}: name a network in the setting model.name."
        )
    what = f"model function {getattr(model, '__qualname__', type(model).__name__)}"
    return partial(made_module, what, model, "correct it: it is called without arguments.")


def model_outputs(
    module: Callable[[Tensor], object],
    inputs: Shaped[Tensor, "batch ..."],
    call: Callable[[Tensor], object] | None = None,
) -> Shaped[Tensor, "batch *outputs"]:
    """Return a model's outputs: a row per example, or a row per token of each.

    Args:
        module: the model, a module or a function.
        inputs: what it sees.
        call: how it is called, where that is not `module(inputs)`.

    Raises:
        ModelError: it raised, or its outputs are no rows per example.
    """
    try:
        outputs = (call or module)(inputs)
    except CoveyError:
        raise
    except Exception as error:
        name, batch = type(module).__name__, tuple(inputs.shape)
        if "Expected more than 1 value per channel" in str(error):
            raise ModelError(
                f"The BatchNorm of {name} needs two examples in every batch, found {batch[0]}: set "
                f"train.drop_last = true and leave out who has one alone, or use nn.GroupNorm."
            ) from error
        ids = " (ids, for nn.Embedding; make features floating-point)"
        whole = "" if inputs.is_floating_point() else ids
        raise ModelError(
            f"The model {name} must take a batch of shape {batch}{whole}, found "
            f"{type(error).__name__}: {error}: correct its forward."
        ) from error
    if not isinstance(outputs, Tensor):
        raise no_such_result(f"The model {type(module).__name__}", "one tensor", outputs)
    if outputs.dim() not in (2, 3) or outputs.shape[0] != inputs.shape[0]:
        raise ModelError(
            f"The model {type(module).__name__} must return a row of outputs per example of "
            f"{tuple(inputs.shape)}, found shape {tuple(outputs.shape)}: squeeze no axis of length "
            f"1, and mix no examples."
        )
    return outputs


def frozen_params(module: nn.Module) -> Params:
    """Return what does not train: all models of a run have the module's own.

    That are parameters without a gradient, and constant buffers with infinite entries, as an
    attention mask has them.
    """
    named = module.named_parameters(remove_duplicate=False)
    frozen = {name: value for name, value in named if not value.requires_grad}
    if masks := _infinite_buffers(module):
        buffers = module.named_buffers(remove_duplicate=False)
        frozen |= {name: value for name, value in buffers if name in masks}
    return frozen


def _infinite_buffers(module: nn.Module) -> frozenset[str]:
    """Return the buffers that were infinite when the module was fresh; copies know them, too."""
    if _MASKS not in module.__dict__:
        buffers, state = module.named_buffers(remove_duplicate=False), module.state_dict()
        module.__dict__[_MASKS] = frozenset(
            name
            for name, value in buffers
            if name in state
            and value.is_floating_point()
            and name.rpartition(".")[2] not in STATISTICS
            and bool(value.isinf().any())
        )
    return module.__dict__[_MASKS]


def personal_params(module: nn.Module, patterns: Collection[str]) -> Params:
    """Return the entries that stay with each client, as the module has them.

    Args:
        module: the model.
        patterns: of their names, as `fnmatch` reads them.

    Raises:
        ConfigError: a pattern matches nothing or a tensor that is shared under another name,
            or nothing that trains is left to be shared.
    """
    params = exchanged_params(module)
    own = {n: v.clone() for n, v in params.items() if any(fnmatchcase(n, p) for p in patterns)}
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in own):
            raise ConfigError(
                f"model.personal must match some of the model's {len(params)} parameters or "
                f"buffers, such as {next(iter(params))!r}, found {pattern!r}: correct it."
            )
    tensors = dict(module.named_parameters(remove_duplicate=False))
    trained = {id(tensors[name]) for name in own if name in tensors}
    if tied := [name for name in params if name not in own and id(tensors.get(name)) in trained]:
        raise ConfigError(
            f"model.personal must match all names of a tensor, found {list(patterns)}, which leave "
            f"{tied[0]}: match that, too."
        )
    if own.keys() >= {
        name for name, parameter in module.named_parameters() if parameter.requires_grad
    }:
        raise ConfigError(
            f"model.personal must leave a parameter that trains to be shared, found "
            f"{list(patterns)}: match fewer, or set method.name = 'local'."
        )
    return own


def held_params(module: nn.Module, personal: Collection[str]) -> Params:
    """Return what is the run's and in no model: what is frozen, and drawn personal entries."""
    return {**frozen_params(module), **personal_params(module, personal)}


def held_hash(module: nn.Module, personal: Collection[str]) -> str:
    """Return the hash of `held_params`; "": there are none."""
    held = held_params(module, personal)
    return model_hash([held]) if held else ""


def exchanged_params(module: nn.Module) -> Params:
    """Return what is trained, kept and sent of a module: all its state but what is frozen."""
    frozen = frozen_params(module)
    return {name: value for name, value in module.state_dict().items() if name not in frozen}


def set_params(module: nn.Module, params: Params) -> None:
    """Let a module take on a model; what is frozen in it stays.

    Raises:
        RuntimeError: it is a model of another module.
    """
    module.load_state_dict({**params, **frozen_params(module)})


def initial_params(module: nn.Module, personal: Collection[str] = ()) -> Params:
    """Return a copy of the module's trained parameters and of its buffers.

    Args:
        module: the model.
        personal: patterns of those that it lacks, as each client keeps its own.
    """
    own = personal_params(module, personal)
    params = exchanged_params(module)
    return {name: value.clone() for name, value in params.items() if name not in own}


def dropout_layers(module: nn.Module) -> list[nn.Module]:
    """Return the layers that drop with positive probability."""
    return [layer for layer in module.modules() if isinstance(layer, _DROPOUTS) and layer.p > 0]


def refuse_batch_norm(module: nn.Module, feature: str) -> None:
    """Refuse BatchNorm, and whatever else keeps statistics over the examples of a batch.

    Args:
        module: the model.
        feature: what cannot be had with them, as the subject of a sentence.

    Raises:
        ModelError: naming the first such layer.
    """
    for layer in module.modules():
        running = isinstance(layer, _INSTANCE_NORMS) and layer.track_running_stats
        if running or isinstance(layer, _BATCH_NORMS):
            raise ModelError(
                f"{feature} needs a model that sees every example alone, found {layer}, which "
                f"mixes a batch's: use nn.GroupNorm instead."
            )


def _check_state(module: nn.Module) -> None:
    """Refuse state that no mean can be taken of.

    Raises:
        ModelError: naming the first entry that is no dense tensor of real numbers.
    """
    for name, value in module.state_dict().items():
        real = isinstance(value, Tensor) and not value.is_complex() and not value.is_quantized
        if not real or value.layout != torch.strided:
            kind = value.dtype if isinstance(value, Tensor) else f"a {type(value).__name__}"
            raise ModelError(
                f"State of {type(module).__name__} must be dense tensors of real numbers, found "
                f"{kind} in {name!r}: register a constant with persistent=False, split complex "
                f"numbers by torch.view_as_real, and leave out get_extra_state."
            )


def check_model(
    module: nn.Module,
    input_shape: tuple[int, ...],
    num_classes: int,
    dtype: torch.dtype = torch.float32,
    tokens: int | None = None,
) -> None:
    """Refuse a module that does not fit its data or draws unreproducible numbers.

    Args:
        module: the model.
        input_shape: of one example.
        num_classes: how many outputs it must have.
        dtype: of what it sees: int64 where inputs are whole numbers.
        tokens: how many tokens of an example have a label each; then there may be more
            classes than labels show, as a vocabulary has. None: examples have the labels.

    Raises:
        ModelError: a batch of two examples does not give two rows of `num_classes`
            floating-point numbers, or as many for every token, or the module draws from
            torch's global generator other than by dropout layers, has lazy layers, or
            nothing to train.
    """
    kind = type(module).__name__
    if any(is_lazy(tensor) for tensor in (*module.parameters(), *module.buffers())):
        raise ModelError(f"{kind} must know its sizes, found lazy layers: give each its sizes.")
    _check_state(module)
    trial = copied(module).train()
    for layer in (*dropout_layers(trial), *fused_dropout_layers(trial)):
        layer.eval()
    with torch.random.fork_rng(devices=[]):
        before = torch.get_rng_state()
        outputs = model_outputs(trial, torch.zeros(2, *input_shape, dtype=dtype))
        draws = not torch.equal(before, torch.get_rng_state())
    if draws:
        raise ModelError(
            f"{kind} must draw in dropout layers alone (nn.Dropout, or the dropout of "
            f"nn.MultiheadAttention, nn.LSTM, nn.GRU and nn.RNN), found that it moves torch's "
            f"global generator: replace what draws by nn.Dropout."
        )
    shape = tuple(outputs.shape)
    expected = (2, num_classes) if tokens is None else (2, tokens, num_classes)
    fits = shape == expected if tokens is None else shape[:-1] == expected[:-1]
    if not fits or shape[-1] < num_classes or not outputs.is_floating_point():
        least = "" if tokens is None else " at least"
        raise ModelError(
            f"{kind} must turn inputs {(2, *input_shape)} into floating-point outputs {expected}, "
            f"found {shape} of {outputs.dtype}: give its last layer{least} {num_classes} outputs."
        )
    if not any(parameter.requires_grad for parameter in module.parameters()):
        raise ModelError(f"{kind} must have a parameter to train, found none: add or unfreeze one.")


@component("model", "python")
class PassedModel(ModelFactory):
    """The place, in settings, of a model that a program holds."""

    is_passed: ClassVar[bool] = True

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:  # noqa: ARG002
        """Refuse: the model is not here.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(passed_again("model"))


class ModelFunction(ModelFactory, OwnFunction):
    """A network's class, or a function that makes one; a shipped network is one too.

    One that takes two arguments beside its settings gets `input_shape` and `num_classes`;
    any other is called with none. Shipped networks end in log-probabilities for the task
    "multiclass" only; for others the last layer, log-softmax, is left off.
    """

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> Any:  # noqa: ANN401 - what a user returned is looked at next
        """Return a freshly initialised network."""
        factory, sizes = self.function, (input_shape, num_classes)
        if inspect.isclass(factory) and issubclass(factory, networks.ImageNetwork):
            remedy = "use larger images or another model, for example mlp."
            check_image(self.name, input_shape, factory.smallest_side, remedy)
        try:
            signature = inspect.signature(factory)
        except (TypeError, ValueError):  # some builtins have none
            signature = inspect.Signature()
        # two arguments are left to pass, by their number or as the needed
        left = [
            parameter
            for name, parameter in signature.parameters.items()
            if name not in self.options
        ]
        needed = [parameter for parameter in left if parameter.default is parameter.empty]
        arguments = sizes if 2 in (len(left), len(needed)) else ()
        try:
            signature.bind(*arguments, **self.options)
        except TypeError as error:
            raise ModelError(
                f"The factory of model {self.name!r} must take (input_shape, num_classes) or "
                f"nothing beside its settings {self.options}, found {signature}: give its other "
                f"arguments defaults."
            ) from error
        module = self.call(*arguments)
        if self.is_own or self.task == "multiclass":
            return module
        if isinstance(module, nn.Sequential) and isinstance(module[-1], nn.LogSoftmax):
            del module[-1]
        return module


def build_model(
    model: ModelFactory, input_shape: tuple[int, ...], num_classes: int, streams: Streams
) -> nn.Module:
    """Return a freshly initialised network; the draws come from `streams` alone.

    Args:
        model: makes it.
        input_shape: the shape of one example, without the batch.
        num_classes: how many outputs the network has: the classes, several labels' number,
            or 1 for a number.
        streams: where the initial parameters come from.
    """
    with streams.lent_to_torch():
        build = partial(model.build_for, input_shape, num_classes, streams.seed)
        return made_module(f"model function {model.name}", build, "correct it.")
