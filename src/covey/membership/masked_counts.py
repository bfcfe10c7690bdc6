"""Counts of losses under masks: a server sees their sums over clients, and no client's."""

from functools import partial

import numpy as np
from jaxtyping import Int64

from covey.data.examples import Client
from covey.engine.protocol import Engine
from covey.membership.assessment import Target
from covey.membership.base import Count, Counts
from covey.membership.federated_estimator import own_counts
from covey.membership.loss_histograms import EDGES, FOLDS
from covey.rng import Streams
from covey.secure_sums import secure_sum

__all__ = ["masked_loss_counter"]

SHAPE = FOLDS, len(EDGES) + 1


def masked_loss_counter(engine: Engine, min_cohort: int) -> Count:
    """Return how clients count under masks; fewer than so many count nothing.

    Nobody can be left out for counting otherwise than most: whose counts are odd, no server
    sees.
    """

    def count(target: Target, streams: Streams) -> tuple[Counts, Counts]:
        nothing = np.zeros(SHAPE, dtype=np.int64)
        if len(target.members) < min_cohort:
            return nothing, nothing

        def own(client: Client) -> Int64[np.ndarray, " numbers"]:
            sides = own_counts(engine, target.params, client, streams)
            return np.concatenate([side.ravel() for side in sides])

        sending = {each.handle: partial(own, each) for each in target.members}
        found = secure_sum(sending, 2 * nothing.size, min_cohort).values
        inside, outside = found.reshape(2, *SHAPE)
        return inside, outside

    return count
