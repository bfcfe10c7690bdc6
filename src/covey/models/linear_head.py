"""A linear head over features that do not train: softmax regression, or a ridge head."""

import copy
from pathlib import Path
from typing import Annotated

from jaxtyping import Float, Shaped
from pydantic import Field
from torch import Tensor, nn

from covey.base.built_ins import built_ins, component
from covey.base.components import AboveZero, Part, Positive, Share
from covey.base.errors import ConfigError
from covey.base.names import unknown
from covey.base.rng import Streams
from covey.data.arrays import read_client
from covey.data.examples import Examples
from covey.data.source import DataSet, data_folder
from covey.models.build import ModelFactory
from covey.models.features import FeatureMap, Gabor
from covey.models.frozen import FrozenFeatures, build_features

MOST_PUBLIC = 3_000
"""Public examples that are looked at: the first ones of a data set."""


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
