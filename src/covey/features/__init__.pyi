from .base import FeatureMap
from .build import build_features
from .frozen import FrozenFeatures

__all__ = [
    "FeatureMap",
    "FrozenFeatures",
    "build_features",
]
