"""In which cluster each client begins, where no head is solved yet to choose by."""

from typing import Literal

import numpy as np

from covey.algorithms.base import ServerState
from covey.algorithms.clients import Clients
from covey.clustering import gap_split
from covey.engine.fixed_features import width_of
from covey.events import ClientsAssigned, Event, GroupsSought
from covey.rng import Streams

__all__ = ["Initialisation", "first_clusters"]

Initialisation = Literal["random", "warm", "groups"]

MEANS = "mean features"


def first_clusters(
    how: tuple[Initialisation, int],
    state: ServerState,
    clients: Clients,
    streams: Streams,
) -> tuple[ClientsAssigned, tuple[Event, ...]]:
    """Return the first clusters: known, by chance, or found in the mean features.

    Args:
        how: `groups`, `random` or `warm`, and how many clusters there are.
        state: before the first round.
        clients: of the first round.
        streams: of the round.
    """
    initialisation, num_clusters = how
    cohort = clients.cohort
    if initialisation == "groups":
        known = {c.handle: c.group or 0 for c in cohort}
        return ClientsAssigned(known, "groups"), ()
    if initialisation == "random":
        draws = {c.handle: streams.at("start", c.name).generator() for c in cohort}
        drawn = {h: int(draw.integers(num_clusters)) for h, draw in draws.items()}
        return ClientsAssigned(drawn, "chance"), ()
    if len(cohort) <= num_clusters:
        return clients.all_in(0, "shared"), ()
    d = width_of(state.clusters[0])
    told = clients.records.means(cohort, d, state.round_index)
    if len(told) <= num_clusters:
        return ClientsAssigned(dict.fromkeys(told, 0), "shared"), ()
    means = np.stack([mean.numpy() for mean in told.values()])
    found = gap_split(means, num_clusters, streams.at("split").generator())
    parts = {h: int(j) for h, j in zip(told, found.labels, strict=True)}
    sought = GroupsSought({MEANS: found.gap}, MEANS, "the mean of its features")
    return ClientsAssigned(parts, "split"), (sought,)
