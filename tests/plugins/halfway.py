"""A calibration with a parameter: between what a client sent then and finds now."""

from dataclasses import replace

from covey import Calibration, ClientUpdate
from covey.components import Share
from covey.types import Params


class Halfway(Calibration):
    """U' = keep * U + (1 - keep) * u"""

    keep: Share = 0.5

    def calibrate(self, found: ClientUpdate, stored: Params) -> ClientUpdate:
        mixed = {
            name: self.keep * stored[name] + (1 - self.keep) * value
            for name, value in found.update.items()
        }
        return replace(found, update=mixed)
