"""What one round of secure sums costs a client and the server, message by message."""

import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from statistics import fmean
from typing import TypeVar

import numpy as np

from covey.rng import Streams
from covey.secure_sums import (
    SESSION_BYTES,
    ClientRound,
    ServerRound,
    Terms,
    neighbourhood,
)

__all__ = ["SecureRoundCost", "SecureRoundSize", "secure_round_cost"]

T = TypeVar("T")
FEWEST, LARGEST = 3, 2**40


@dataclass(frozen=True, slots=True)
class SecureRoundSize:
    """A round.

    Attributes:
        numbers: that each client sends.
        drop_outs: clients that give their shares and then stay away, which costs most.
        neighbours: of each client; 0: as many as a simulation takes.
    """

    clients: int
    numbers: int
    drop_outs: int = 0
    neighbours: int = 0


@dataclass(frozen=True, slots=True)
class SecureRoundCost:
    """What the round took.

    Attributes:
        neighbours: of each client.
        client_seconds: of this process, mean of a client that stays.
        server_seconds: of this process.
        sent_bytes: by a client that stays, beside its numbers; mean.
        received_bytes: by it; mean.
        exact: whether the sum was that of the survivors' numbers.
    """

    neighbours: int
    client_seconds: float
    server_seconds: float
    sent_bytes: float
    received_bytes: float
    exact: bool


@dataclass(frozen=True, slots=True)
class _Spent:
    """Seconds and bytes of everybody, as they are counted."""

    seconds: defaultdict[str, float] = field(
        default_factory=partial(defaultdict[str, float], float)
    )
    sent: Counter[str] = field(default_factory=Counter[str])
    received: Counter[str] = field(default_factory=Counter[str])

    def by(self, who: str, work: Callable[[], T]) -> T:
        began = time.process_time()
        found = work()
        self.seconds[who] += time.process_time() - began
        return found


SERVER = ""


def secure_round_cost(size: SecureRoundSize, seed: int = 0) -> SecureRoundCost:
    """Play a round with every message, and return what it took.

    Raises:
        RoundGivenUpError: too few are left to take the masks off.
    """
    names = [f"client-{i:05d}" for i in range(size.clients)]
    staying = names[size.drop_outs :]
    k = size.neighbours or max(neighbourhood(size.clients).neighbours, 2)
    terms = Terms(os.urandom(SESSION_BYTES), size.numbers, FEWEST, k)
    spent, sides = _Spent(), dict[str, ClientRound]()
    server = ServerRound(terms, tuple(names))

    def sends(name: str, step: Callable[[], tuple[ClientRound, bytes]]) -> None:
        nonlocal server
        sides[name], message = spent.by(name, step)
        spent.sent[name] += len(message)
        before = server
        server = spent.by(SERVER, lambda: before.accept(name, message))

    for name in names:
        sends(name, lambda name=name: ClientRound.begin(terms, name).advertise())
    server, roster = spent.by(SERVER, server.close_keys)
    for name in names:
        spent.received[name] += len(roster)
        sends(name, lambda side=sides[name]: side.share(roster))
    server, deliveries = spent.by(SERVER, server.close_shares)
    total = np.zeros(size.numbers, dtype=np.int64)
    for name in staying:
        numbers = _numbers(size, seed, name)
        total += numbers
        own = deliveries[name]
        spent.received[name] += len(own)
        sends(name, lambda s=sides[name], own=own, n=numbers: s.mask(own, n))
    server, survivors = spent.by(SERVER, server.close_masked)
    for name in staying:
        spent.received[name] += len(survivors)
        sends(name, lambda side=sides[name]: side.unmask(survivors))
    _, found = spent.by(SERVER, server.close)
    return SecureRoundCost(
        neighbours=k,
        client_seconds=fmean(spent.seconds[name] for name in staying),
        server_seconds=spent.seconds[SERVER],
        sent_bytes=fmean(spent.sent[name] for name in staying) - 8 * size.numbers,
        received_bytes=fmean(spent.received[name] for name in staying),
        exact=bool((found.values == total).all()),
    )


def _numbers(size: SecureRoundSize, seed: int, name: str) -> np.ndarray:
    generator = Streams(seed).at("numbers", name).generator()
    return generator.integers(LARGEST, size=size.numbers, dtype=np.int64)
