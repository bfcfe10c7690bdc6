"""Optimizers of torch's, or of a user's, that no component stands for."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from covey.engine.optimizers import Optimizer, Tensors
from covey.errors import ConfigError, CoveyError

__all__ = ["TorchOptimizer"]


class TorchOptimizer(Optimizer):
    """Any class of torch's or of a user's that is made as `maker(weights, lr=...)`."""

    maker: Callable[..., Any]
    """The class, with its own options bound."""

    def make(self, weights: Tensors, learning_rate: float) -> Any:  # noqa: ANN401
        """Return what the class makes."""
        try:
            return self.maker(weights, lr=learning_rate)
        except CoveyError:
            raise
        except Exception as error:
            raise self._unfit(error) from error

    def tried(self) -> "TorchOptimizer":
        """Return itself, after a step with a matrix.

        Raises:
            ConfigError: there are no such options, or it asks for more than gradients.
        """
        matrix = torch.ones(2, 2)
        step = self.begin([matrix], 0.1)
        try:
            step([torch.ones(2, 2)])
        except Exception as error:
            raise self._unfit(error) from error
        return self

    def _unfit(self, error: Exception) -> ConfigError:
        made: Any = self.maker.func if isinstance(self.maker, partial) else self.maker
        return ConfigError(
            f"train.optimizer must take one step with given gradients, but "
            f"{made.__name__} raised {type(error).__name__}: {error}. Correct "
            f"[train.optimizer_options], or choose another optimizer."
        )
