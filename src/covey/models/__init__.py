"""The networks that covey ships, and how a model is built, checked and read."""

from covey.models.build import (
    NETWORKS,
    build_model,
    check_model,
    dropout_layers,
    initial_params,
    refuse_batch_norm,
)
from covey.models.drawing import fused_dropout_layers

__all__ = [
    "NETWORKS",
    "build_model",
    "check_model",
    "dropout_layers",
    "fused_dropout_layers",
    "initial_params",
    "refuse_batch_norm",
]
