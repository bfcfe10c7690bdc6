"""Rounds that are played again from what clients sent in them, not from a whole training.

The models that come out never saw who has left, and take less time than training again.
How well they do is the business of the `Calibration` that the settings name.
"""

from collections.abc import Iterator, Mapping

from covey.aggregation import ClientUpdate
from covey.algorithms.base import Cohort
from covey.algorithms.client_memory import NO_INPUTS, ObjectiveInputs
from covey.algorithms.local_training import Train
from covey.components import Component
from covey.engine import Recipe
from covey.rng import Streams
from covey.types import Handle, Params

__all__ = ["Calibration", "calibrated_by"]


class Calibration(Component):
    """What a client does, and sends, in a round whose update it has sent before.

    Write `calibrate`; the fields of a subclass are its options.

        class Halfway(Calibration):
            def calibrate(self, found, stored):
                return replace(found, update=mean([found.update, stored]))
    """

    def recipe(self, usual: Recipe) -> Recipe:
        """Return how clients train for it: as usual, unless a subclass takes less."""
        return usual

    def calibrate(self, found: ClientUpdate, stored: Params) -> ClientUpdate:
        """Return what counts as the client's update.

        Args:
            found: by training now, from the model that never saw who has left.
            stored: what the client sent in the same round of the old run.
        """
        raise NotImplementedError


def calibrated_by(
    calibration: Calibration, train: Train, stored: Mapping[Handle, Params]
) -> Train:
    """Return a training step that calibrates what is stored of each client.

    A client without a stored update sends what it finds as it is.
    """

    def calibrating(
        clusters: tuple[Params, ...],
        cohort: Cohort,
        assignment: Mapping[Handle, int],
        streams: Streams,
        inputs: ObjectiveInputs = NO_INPUTS,
    ) -> Iterator[ClientUpdate]:
        for each in train(clusters, cohort, assignment, streams, inputs):
            old = stored.get(each.handle)
            yield each if old is None else calibration.calibrate(each, old)

    return calibrating
