"""A menu: every cluster model in several releases, each with its measured risk.

A client of cluster j picks the release r_i with the lowest loss among those whose risk it
accepts, and trains it and every release of j that shares more, each from where it stands:

    theta_{j,r} <- mean of the models theta_i trained from theta_{j,r} by {i in j: r_i <= r}

after which release r is pooled over the clusters by its own share
(`covey.algorithms.pooling`). So whoever
accepts little is in no release that shares less than its own, and whoever accepts much
trains for everybody in its cluster, at the price of a training per release.
"""

from collections.abc import Callable
from dataclasses import replace

from covey.algorithms.base import ServerState, initial_state
from covey.algorithms.pooling import Control
from covey.rng import Streams

__all__ = ["SHARES", "menu_shares", "on_the_menu"]

SHARES = (0.0, 1 / 3, 2 / 3)
"""How much of each release is shared: nothing, a third and two thirds of the layers."""


Init = Callable[[Streams], ServerState]


def on_the_menu(init: Init) -> Init:
    """Start every release of a cluster from the cluster's first model."""

    def start(streams: Streams) -> ServerState:
        every_release = init(streams).clusters * len(SHARES)
        return replace(initial_state(every_release), releases=len(SHARES))

    return start


def menu_shares(num_clusters: int) -> Control:
    """Pool every release by its own share."""
    shares = tuple(share for share in SHARES for _ in range(num_clusters))
    return lambda _: shares
