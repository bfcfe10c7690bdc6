"""Who else is told of a run's rounds: TensorBoard, MLflow, W&B, a user's own."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
