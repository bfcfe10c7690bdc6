"""Features that do not train: computed once for every record, and kept in a store."""

import copy
import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any

import safetensors.torch
import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from covey.base.errors import ModelError, blamed
from covey.base.own_code import UNKNOWN_SOURCE, source_hash
from covey.base.rng import Streams
from covey.data.examples import Examples, hashes, to_floats
from covey.models.build import no_such_result
from covey.models.feature_store import FeatureStore
from covey.models.features import FeatureFunction, FeatureMap
from covey.models.whitening import OneNorm, Whitened, Whitening, noise_features

CHUNK = 1_000
"""Examples whose features covey's own maps compute at a time: bounds the memory, not the result."""

BATCH = 64
"""The same of a user's map: a network's layers take more memory."""

PUBLIC = "public examples"
"""Who holds the examples by which features are whitened."""


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
