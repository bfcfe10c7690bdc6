"""A whole round in one process: for simulations, and for whoever wants to see one."""

import os
from collections.abc import Callable, Mapping

import numpy as np
from jaxtyping import Int64

from covey.secure_sums.client import ClientRound
from covey.secure_sums.neighbours import neighbourhood
from covey.secure_sums.results import SecureSum
from covey.secure_sums.server import ServerRound
from covey.secure_sums.terms import SESSION_BYTES, Terms

__all__ = ["secure_sum"]


def secure_sum(
    clients: Mapping[str, Callable[[], Int64[np.ndarray, " numbers"]]],
    length: int,
    minimum: int,
) -> SecureSum:
    """Return the sum over clients who all stay, through every message of a round.

    Keys and masks come from the operating system, never from a seed. No bit of the sum
    depends on them.

    Args:
        clients: what returns each one's numbers, asked for when they are masked.
        length: how many numbers that is.
        minimum: the fewest clients.

    Raises:
        RoundGivenUpError: there are fewer.
    """
    k = neighbourhood(len(clients)).neighbours
    terms = Terms(os.urandom(SESSION_BYTES), length, minimum, max(k, 2))
    server = ServerRound(terms, tuple(sorted(clients)))
    sides: dict[str, ClientRound] = {}
    for name in clients:
        sides[name], keys = ClientRound.begin(terms, name).advertise()
        server = server.accept(name, keys)
    server, roster = server.close_keys()
    for name, side in sides.items():
        sides[name], shares = side.share(roster)
        server = server.accept(name, shares)
    server, deliveries = server.close_shares()
    for name, side in sides.items():
        sides[name], masked = side.mask(deliveries[name], clients[name]())
        server = server.accept(name, masked)
    server, survivors = server.close_masked()
    for name, side in sides.items():
        sides[name], opened = side.unmask(survivors)
        server = server.accept(name, opened)
    return server.close()[1]
