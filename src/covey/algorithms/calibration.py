"""Rounds that are played again from what clients sent in them, not from a whole training.

The models that come out never saw who has left, and take less time than training again:
FedEraser keeps the length of each client's stored update, in the direction found now.

U'_i = |U_i| * u_i / ||u_i||

U_i is what the client sent in the same round of the old run and u_i what it finds now, by
a shorter training from the model that never saw the one who left.

References:
    Liu, Ma, Yang, Wang, Liu, FedEraser: Enabling Efficient Client-Level Data Removal from
    Federated Learning Models, 2021, Algorithm 1 and Eq. 1-4.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

from covey.aggregation import ClientUpdate
from covey.algorithms.base import Cohort
from covey.algorithms.client_memory import NO_INPUTS, ObjectiveInputs
from covey.algorithms.local_training import Train
from covey.engine import Recipe
from covey.params import flatten, scale, trained
from covey.rng import Streams
from covey.types import Handle, Params

__all__ = ["calibrated_by", "calibration_recipe"]

SHARE = 0.5
"""Of the local training: what a calibration takes, at least one epoch."""


def calibration_recipe(usual: Recipe) -> Recipe:
    """Return the shorter training by which clients find new directions."""
    return replace(
        usual,
        local_epochs=max(1, round(usual.local_epochs * SHARE)),
        local_steps=math.ceil(usual.local_steps * SHARE),
    )


def calibrated_by(train: Train, stored: Mapping[Handle, Params]) -> Train:
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
            yield each if old is None else _as_long(each, old)

    return calibrating


def _as_long(found: ClientUpdate, stored: Params) -> ClientUpdate:
    """Return the update found, as long as the stored one."""
    length = _length(found.update)
    factor = _length(stored) / length if length > 0 else 0.0
    return replace(found, update=scale(found.update, factor))


def _length(update: Params) -> float:
    return float(flatten(trained(update)).norm())
