"""A linear head over features that do not train: softmax regression, or a ridge head.

Features are computed once for every record, and kept in a store.
"""

import copy
import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any

import safetensors.torch
import torch
from jaxtyping import Float, Shaped
from pydantic import Field
from torch import Tensor, nn

from covey.base.built_ins import built_ins, component
from covey.base.components import AboveZero, Part, Positive, Share
from covey.base.errors import ConfigError, ModelError, blamed
from covey.base.names import unknown
from covey.base.own_code import UNKNOWN_SOURCE, source_hash
from covey.base.rng import Streams
from covey.data.arrays import read_client
from covey.data.examples import Examples, hashes, to_floats
from covey.data.source import DataSet, data_folder
from covey.models.build import ModelFactory, no_such_result
from covey.models.feature_store import FeatureStore
from covey.models.features import FeatureFunction, FeatureMap, Gabor
from covey.models.whitening import OneNorm, Whitened, Whitening, noise_features

CHUNK = 1_000
"""Examples whose features covey's own maps compute at a time: bounds the memory, not the result."""

BATCH = 64
"""The same of a user's map: a network's layers take more memory."""

PUBLIC = "public examples"
"""Who holds the examples by which features are whitened."""

MOST_PUBLIC = 3_000
"""Public examples that are looked at: the first ones of a data set."""


class FixedMap:
    """A feature map as a module, beside what tells it from all others.

    A user's map, such as a network, takes long: its rows are kept in a `FeatureStore`, if
    there is one. Covey's own are sooner computed than read.

    Attributes:
        module: maps a batch to rows; it is never trained.
        name: of the feature map, as settings have it.
        options: of the feature map.
        source: SHA-256 of a user's own source; "" for covey's own.
        tensors: SHA-256 of its tensors: filters or weights; "" if it has none.
        store: where rows are kept.
    """

    def __init__(
        self, module: nn.Module, name: str, options: Mapping[str, Any], source: str
    ) -> None:
        self.module = module.eval().requires_grad_(requires_grad=False)
        self.name, self.options, self.source = name, dict(options), source
        self.tensors = _tensor_hash(module)
        self.store: FeatureStore | None = None

    @property
    def is_stored(self) -> bool:
        """Whether rows are kept in the store."""
        return self.store is not None and self.source not in ("", UNKNOWN_SOURCE)

    @property
    def identity(self) -> str:
        """What tells it from all others."""
        return f"{self.name} {self.options} {self.source} {self.tensors}"

    def __call__(self, inputs: Shaped[Tensor, "batch ..."]) -> Float[Tensor, "batch ..."]:
        """Return what the map makes of a batch, as float32; nothing is kept for a gradient.

        Raises:
            ModelError: it does not fit the inputs, or returns no tensor.
        """
        subject = f"The feature map {self.name}, on a batch of shape {tuple(inputs.shape)},"
        with torch.no_grad(), blamed(ModelError, subject, "choose one that fits these inputs."):
            features: Any = self.module(inputs.clone())  # a user's may write
        if not isinstance(features, Tensor):
            raise no_such_result(f"The feature map {self.name}", "one tensor", features)
        return features.float()

    def rows(
        self, inputs: Shaped[Tensor, "n ..."], records: Sequence[bytes], holder: str
    ) -> Float[Tensor, "n d"]:
        """Return the rows of examples, out of the store if all are there.

        Args:
            inputs: of the examples, as they are kept.
            records: a hash of each.
            holder: for whom they are put into the store; "": they are not.
        """
        store = self.store if self.is_stored else None
        own = f"{self.identity} {inputs.dtype} {tuple(inputs.shape[1:])}".encode()
        keys = [blake2b(own + record, digest_size=16).digest() for record in records if store]
        known = store.read(keys) if store else None
        if known is None:
            parts = inputs.split(BATCH if self.source else CHUNK)
            rows = torch.cat([self(to_floats(part)) for part in parts])
        else:
            rows = torch.from_numpy(known)
        if store and holder:
            store.write(holder, keys, rows.numpy())
        return rows


class FrozenFeatures(nn.Module):
    """Features of a batch, one row each; none of its tensors is a parameter or a buffer.

    So a model that has it keeps, sends and averages its other parts alone. After the map
    come whitening and a norm, if they are wished for.

    Attributes:
        map: what they are features by.
        public: hashes of the public examples by which it is whitened, if there are any.
        size: how many features there are (d).
    """

    map: FixedMap
    public: frozenset[bytes]

    def __init__(self, fixed: FixedMap) -> None:
        super().__init__()
        self.map, self.public, self.size = fixed, frozenset(), 0
        self._steps: tuple[nn.Module, ...] = ()  # a tuple, so that torch does not see them

    def at_norm(self, norm: float) -> "FrozenFeatures":
        """Return the same features, centred and scaled to this norm for each record."""
        return self._then(OneNorm(norm))

    def whitened(
        self, power: float, input_shape: tuple[int, ...], streams: Streams
    ) -> "FrozenFeatures":
        """Return the same features, whitened by images of noise (`Whitened`)."""
        rows = partial(noise_features, self.map, input_shape, streams)
        key = f"{self.map.identity} {input_shape} {streams.digest().hex()}"
        return self._then(Whitened(Whitening(rows, key, power).axes))

    def whitened_by(self, public: Examples, power: float, directions: int) -> "FrozenFeatures":
        """Return so many of the same features, whitened by public examples (`Whitened`)."""
        records = hashes(public.inputs)
        rows = partial(self.map.rows, public.inputs, records, PUBLIC)
        size = min(directions, self.size)
        key = f"{self.map.identity} {hashlib.sha256(b''.join(records)).hexdigest()}"
        features = self._then(Whitened(Whitening(rows, key, power, size).axes))
        features.public, features.size = frozenset(records), size
        return features

    @property
    def public_hash(self) -> str:
        """SHA-256 over the hashes of the public examples; "": there are none."""
        return hashlib.sha256(b"".join(sorted(self.public))).hexdigest() if self.public else ""

    def _then(self, step: nn.Module) -> "FrozenFeatures":
        features = copy.copy(self)
        features._steps = (*self._steps, step)
        return features

    def sized(self, input_shape: tuple[int, ...]) -> "FrozenFeatures":
        """Try it on two examples, and learn its size.

        Raises:
            ModelError: it does not return two rows of floating-point numbers.
        """
        zeros = torch.zeros(2, *input_shape)
        try:
            features = self(zeros)
        except ModelError as error:
            try:
                features = self(zeros.long())  # a map of ids, such as of words
            except ModelError:
                raise error from None
        if features.dim() != 2 or len(features) != 2 or not features.isfinite().all():
            raise ModelError(
                f"The feature map {self.map.name} must turn two zero examples {input_shape} into "
                f"two rows of finite numbers, found shape {tuple(features.shape)}: flatten its "
                f"outputs, and give constant examples values, too."
            )
        self.size = features.shape[1]
        return self

    def forward(self, inputs: Shaped[Tensor, "batch ..."]) -> Float[Tensor, "batch ..."]:
        """Return the features as float32; nothing is kept for a gradient."""
        return self._stepped(self.map(inputs))

    def rows(
        self, inputs: Shaped[Tensor, "n ..."], records: Sequence[bytes], holder: str = ""
    ) -> Float[Tensor, "n d"]:
        """Return the features of examples as they are kept (`FixedMap.rows`)."""
        return self._stepped(self.map.rows(inputs, records, holder))

    def _stepped(self, features: Float[Tensor, "batch ..."]) -> Float[Tensor, "batch ..."]:
        with torch.no_grad():
            for step in self._steps:
                features = step(features)
        return features

    def _apply(
        self,
        fn: Callable[[Tensor], Tensor],
        recurse: bool = True,  # noqa: FBT001, FBT002 - torch's own
    ) -> "FrozenFeatures":
        """Go along to where the model goes."""
        for module in (self.map.module, *self._steps):
            module._apply(fn)
        return super()._apply(fn, recurse)


def _tensor_hash(module: nn.Module) -> str:
    """Return SHA-256 over all tensors, persistent or not; "" if there are none."""
    tensors = {
        name: value.detach().clone(memory_format=torch.contiguous_format)
        for name, value in (*module.named_parameters(), *module.named_buffers())
    }
    if not tensors:
        return ""
    return hashlib.sha256(safetensors.torch.save(tensors)).hexdigest()


def build_features(features: FeatureMap, input_shape: tuple[int, ...], seed: int) -> FrozenFeatures:
    """Return the features that all models of a run share.

    Args:
        features: the feature map.
        input_shape: of one example, without the batch.
        seed: the run's; whatever is drawn depends on nothing else.

    Raises:
        ModelError: it makes no module that maps examples to rows.
    """
    module = features.build(input_shape, Streams(seed).at("features"))
    maker = features.function if isinstance(features, FeatureFunction) else type(features)
    source = source_hash(maker) if features.is_own else ""
    fixed = FixedMap(module, features.name, features.own_settings(), source)
    return FrozenFeatures(fixed).sized(input_shape)


class LinearHeadNetwork(nn.Module):
    """scale * head(features(x)); the head starts at zero, and it alone is the state."""

    features: FrozenFeatures

    def __init__(self, features: FrozenFeatures, num_classes: int, scale: float) -> None:
        super().__init__()
        self.features, self.scale = features, scale
        self.head = nn.Linear(features.size, num_classes)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, inputs: Shaped[Tensor, "batch ..."]) -> Float[Tensor, "batch k"]:
        """Return logits."""
        return self.scale * self.head(self.features(inputs))


class HeadAlone(nn.Module):
    """The head of a `LinearHeadNetwork`, whose inputs are rows of features on a grid.

    Args:
        network: whose head it is.
        unit: steps of the grid in a feature's unit; the last number of a row, the bias, is 1 unit.
    """

    def __init__(self, network: LinearHeadNetwork, unit: int) -> None:
        super().__init__()
        self.head, self.scale, self.unit = copy.deepcopy(network.head), network.scale, unit

    def forward(self, rows: Shaped[Tensor, "batch d_and_one"]) -> Float[Tensor, "batch k"]:
        """Return logits."""
        return self.scale * self.head(rows[:, :-1].float() / self.unit)


def public_examples(name: str, input_shape: tuple[int, ...]) -> Examples:
    """Return public examples that look like clients' and are none of theirs.

    Args:
        name: a data set of covey's, or the path of an .npz file as clients have them.
        input_shape: of a client's example.

    Raises:
        ConfigError: there is no such data set, or it has another shape.
        DataError: its files are missing or malformed.
    """
    if name.endswith(".npz"):
        public = read_client(Path(name))
    elif issubclass(made := built_ins("data").get(name, ModelFactory), DataSet):
        public = made().read(data_folder("")).train
    else:
        known = [name for name, cls in built_ins("data").items() if issubclass(cls, DataSet)]
        what = "model.whiten_from (or the path of an .npz file)"
        raise ConfigError(unknown(what, name, known))
    if (shape := tuple(public.inputs.shape[1:])) != input_shape:
        raise ConfigError(
            f"model.whiten_from must have examples of shape {input_shape}, as clients do, found "
            f"{shape} in {name}: name others."
        )
    return public.first(MOST_PUBLIC)


@component("model", "linear-head")
class LinearHead(ModelFactory):
    """Softmax regression over a feature map, which all models of a run share.

    Every model starts at zero, so clusters that start apart (`method.initialisation =
    "random"`) start alike, and choices by loss find one cluster.

    Attributes:
        features: the feature map.
        scale: times the head's scores are the logits; 0.3 suits gradient descent over
            features of images.
        whiten: p in [0, 1], how far the features of images are whitened, by images of
            noise (`Whitened`).
        whiten_from: public examples that take the place of images of noise: a published
            data set by its name, of which the first 3,000 training examples are looked at, or
            the path of an .npz file. They must be no client's; "": there are none.
        directions: how many axes of the public examples are kept, those of the largest
            variance: few suit few records.
        norm: L2 norm to which each record's features are scaled, less their mean first; 0:
            they stay as they are.
    """

    features: Annotated[FeatureMap, Part("features")] = Gabor()
    scale: AboveZero = 10.0
    whiten: Share = 0.0
    whiten_from: str = ""
    directions: Positive = 128
    norm: Annotated[float, Field(ge=0, le=16)] = 0.0

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        """Refuse: features are drawn from the seed of a run."""
        raise ConfigError(
            f"A linear head needs a run's seed for its features, found none: call "
            f"build_for({input_shape}, {num_classes}, seed)."
        )

    def build_for(self, input_shape: tuple[int, ...], num_classes: int, seed: int) -> nn.Module:
        """Return the head over this run's features."""
        features = build_features(self.features, input_shape, seed)
        if self.whiten_from:
            public = public_examples(self.whiten_from, input_shape)
            features = features.whitened_by(public, self.whiten, self.directions)
        elif self.whiten:
            features = features.whitened(self.whiten, input_shape, Streams(seed).at("features"))
        if self.norm:
            features = features.at_norm(self.norm)
        return LinearHeadNetwork(features, num_classes, self.scale)
