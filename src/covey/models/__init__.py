"""The networks that covey ships, and how a model is built, checked and read."""

from covey.models.base import ModelFactory
from covey.models.build import NETWORKS, build_model
from covey.models.checks import (
    check_model,
    dropout_layers,
    initial_params,
    refuse_batch_norm,
)
from covey.models.drawing import fused_dropout_layers
from covey.models.instance import WHOLE, factory_of

__all__ = [
    "NETWORKS",
    "WHOLE",
    "ModelFactory",
    "build_model",
    "check_model",
    "dropout_layers",
    "factory_of",
    "fused_dropout_layers",
    "initial_params",
    "refuse_batch_norm",
]
