"""A linear model over fixed features: all that is trained is one matrix and its bias."""

from collections.abc import Mapping
from typing import Any, cast

from jaxtyping import Float, Shaped
from pydantic import Field, model_validator
from torch import Tensor, nn

from covey.components.built_ins import DEFAULTS
from covey.components.registry import options_of, reference
from covey.components.slots import Options
from covey.errors import ConfigError
from covey.features import FeatureMap, FrozenFeatures, build_features
from covey.models.base import ModelFactory
from covey.rng import Streams

__all__ = ["LinearHead", "LinearHeadNetwork"]


class LinearHeadNetwork(nn.Module):
    """scale * head(features(x)); the head starts at zero, and it alone is the state."""

    def __init__(
        self, features: FrozenFeatures, num_classes: int, scale: float
    ) -> None:
        super().__init__()
        self.features, self.scale = features, scale
        self.head = nn.Linear(features.size, num_classes)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, inputs: Shaped[Tensor, "batch ..."]) -> Float[Tensor, "batch k"]:
        """Return logits."""
        return self.scale * self.head(self.features(inputs))


class LinearHead(ModelFactory):
    """Softmax regression over a feature map, which all models of a run share.

    Every model starts at zero, so clusters that start apart (`method.initialisation =
    "random"`) start alike, and choices by loss find one cluster.

    Attributes:
        features: the feature map.
        feature_options: of the feature map.
        scale: times the head's scores are the logits.
        whiten: p in [0, 1], how far the features of images are whitened, by images of
            noise (`Whitened`); noise on heads (`privacy.record_noise`) wants .7.
        norm: L2 norm to which each record's features are scaled, less their mean first; 0:
            they stay as they are. Noise on sums and on heads wants 3.87.
    """

    features: str = DEFAULTS["features"]
    feature_options: Options = Field(default={})
    scale: float = Field(default=10.0, gt=0)
    whiten: float = Field(default=0.0, ge=0, le=1)
    norm: float = Field(default=0.0, ge=0, le=16)

    @model_validator(mode="before")
    @classmethod
    def _named(cls, options: object) -> object:
        """Take a feature map that a program passes by its name and its options."""
        if not isinstance(options, Mapping):
            return options
        named = dict(cast("Mapping[str, Any]", options))
        passed = named.get("features")
        if isinstance(passed, FeatureMap) or callable(passed):
            named["features"] = reference(passed)
            given = named.get("feature_options", {})
            named["feature_options"] = {**given, **options_of(passed)}
        return named

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        """Refuse: features are drawn from the seed of a run."""
        raise ConfigError(
            f"A linear head's features are drawn from a run's seed, which build does not "
            f"know. Call build_for({input_shape}, {num_classes}, seed)."
        )

    def build_for(
        self, input_shape: tuple[int, ...], num_classes: int, seed: int
    ) -> nn.Module:
        """Return the head over this run's features."""
        key = "model.options.features"
        features = build_features(
            self.features, input_shape, seed, self.feature_options, key
        )
        if self.whiten:
            public = Streams(seed).at("features")
            features = features.whitened(self.whiten, input_shape, public)
        if self.norm:
            features = features.at_norm(self.norm)
        return LinearHeadNetwork(features, num_classes, self.scale)
