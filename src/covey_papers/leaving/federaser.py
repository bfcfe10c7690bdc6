"""FedEraser's calibrated round: old magnitudes, new directions, without who has left."""

import math
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from covey.aggregation import ClientUpdate
from covey.algorithms import Calibration
from covey.engine import Recipe
from covey.params import flatten, scale, trained
from covey.types import Params

__all__ = ["FedEraser"]


class FedEraser(Calibration):
    """Keep the length of each client's stored update, in the direction found now.

    U'_i = |U_i| * u_i / ||u_i||

    U_i is what the client sent in the same round of the old run and u_i what it finds now,
    by a shorter training from the model that never saw the one who left.

    Attributes:
        ratio: share of the local training that it takes, at least one epoch.

    References:
        Liu, Ma, Yang, Wang, Liu, FedEraser: Enabling Efficient Client-Level Data Removal
        from Federated Learning Models, 2021, Algorithm 1 and Eq. 1-4.
    """

    ratio: Annotated[float, Field(gt=0, le=1)] = 0.5

    def recipe(self, usual: Recipe) -> Recipe:
        """Return a shorter training."""
        return replace(
            usual,
            local_epochs=max(1, round(usual.local_epochs * self.ratio)),
            local_steps=math.ceil(usual.local_steps * self.ratio),
        )

    def calibrate(self, found: ClientUpdate, stored: Params) -> ClientUpdate:
        """Return the update found, as long as the stored one."""
        length = _length(found.update)
        factor = _length(stored) / length if length > 0 else 0.0
        return replace(found, update=scale(found.update, factor))


def _length(update: Params) -> float:
    return float(flatten(trained(update)).norm())
