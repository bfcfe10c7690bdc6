"""An attack from inside the model: what it has learnt moves it least.

Nasr, Shokri, Houmansadr, Comprehensive Privacy Analysis of Deep Learning, 2019.
"""

from typing import ClassVar

import numpy as np
import torch

import covey


class GradientNorm(covey.Attack):
    """Minus the L2 norm of the gradient of a record's loss in all parameters."""

    needs: ClassVar = "none"

    def __call__(self, signals: covey.Signals) -> np.ndarray:
        if signals.gradients is None:
            raise covey.ConfigError(
                "The norm of gradients needs the model itself, found its answers only. "
                "Audit a run: covey audit RUN --attack plugins.attack_gradient_norm:GradientNorm"
            )
        gradients = (torch.cat([g.flatten() for g in one.values()]) for one in signals.gradients())
        return np.array([-float(gradient.norm()) for gradient in gradients])
