"""A hash of all clients' data, carried on from where they are others than before."""

import hashlib
from itertools import takewhile
from typing import TYPE_CHECKING

import numpy as np

from covey.data.examples import Client
from covey.data.population import Population

if TYPE_CHECKING:
    from hashlib import _Hash

EVERY = 64
"""Clients between two places from which a hash can be carried on."""


def data_hash(population: Population) -> str:
    """Return SHA-256 over all clients' handles and examples, as hex.

    Empty where the clients keep their examples to themselves. It is recorded under a run's
    secret, if it has one (`Secrets.keyed`): all records but one, and this, give that one away.
    """
    return DataHashes().of(population)


class DataHashes:
    """Hashes populations of one run, which differ by few clients.

    A hash is carried on from where the clients are others than in the one before: somebody
    left, or came. Examples are frozen, so the same ones have the same bytes.
    """

    def __init__(self) -> None:
        self._clients: tuple[Client, ...] = ()
        self._marks: tuple[_Hash, ...] = ()

    def of(self, population: Population) -> str:
        """Return what `data_hash` does."""
        clients = population.clients
        if not any(len(client.train) for client in clients):
            return ""
        both = zip(self._clients, clients, strict=False)
        alike = sum(1 for _ in takewhile(lambda pair: _have_same(*pair), both))
        marks = [*self._marks[: alike // EVERY]]
        layout = population.layout or ""
        digest = marks[-1].copy() if marks else hashlib.sha256(str(layout).encode())
        for count, client in enumerate(clients[len(marks) * EVERY :], 1):
            _add(digest, client)
            if count % EVERY == 0:
                marks.append(digest.copy())
        self._clients, self._marks = clients, tuple(marks)
        return digest.hexdigest()


def _have_same(one: Client, other: Client) -> bool:
    return one is other or (
        one.handle == other.handle and one.train is other.train and one.holdout is other.holdout
    )


def _add(digest: "_Hash", client: Client) -> None:
    digest.update(client.handle.encode())
    for examples in (client.train, client.holdout):
        if len(examples):  # of thousands of clients many hold out none
            digest.update(np.ascontiguousarray(examples.inputs.numpy()).data)
            digest.update(np.ascontiguousarray(examples.labels.numpy()).data)
