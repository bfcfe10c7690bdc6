"""FedEraser's calibrated round: old magnitudes, new directions, without who has left.

References:
    Liu, Ma, Yang, Wang, Liu, FedEraser: Enabling Efficient Client-Level Data Removal from
    Federated Learning Models, 2021, Algorithm 1 and Eq. 1-4.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from covey.aggregation import ClientUpdate
from covey.algorithms.base import Cohort
from covey.algorithms.round_steps import Train
from covey.params import flatten, scale, trained
from covey.rng import Streams
from covey.types import Handle, Params

__all__ = ["calibrated_by"]


def calibrated_by(train: Train, stored: Mapping[Handle, Params]) -> Train:
    """Return a training step that keeps the length of each client's stored update.

    U'_i = |U_i| * u_i / ||u_i||

    U_i is what the client sent in the same round of the old run and u_i what it finds now,
    by a shorter training from the model that never saw the one who left. A client without
    a stored update sends u_i as it is.
    """

    def calibrating(
        clusters: tuple[Params, ...],
        cohort: Cohort,
        assignment: Mapping[Handle, int],
        streams: Streams,
    ) -> Iterator[ClientUpdate]:
        for each in train(clusters, cohort, assignment, streams):
            old = stored.get(each.handle)
            yield each if old is None else _rescaled(each, _length(old))

    return calibrating


def _length(update: Params) -> float:
    return float(flatten(trained(update)).norm())


def _rescaled(each: ClientUpdate, length: float) -> ClientUpdate:
    found = _length(each.update)
    factor = length / found if found > 0 else 0.0
    return replace(each, update=scale(each.update, factor))
