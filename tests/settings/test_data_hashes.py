"""A hash of all data that is carried on from an earlier one is the hash from the start."""

import hashlib
from dataclasses import replace

import torch
from hypothesis import given
from hypothesis import strategies as st

from covey import Examples, Streams
from covey.data.examples import Client
from covey.data.population import MARKED_EVERY, DataHashes, Population, absent_population, data_hash


def examples(size: int, start: int) -> Examples:
    return Examples(torch.arange(start, start + size).float(), torch.arange(size))


def population(clients: tuple[Client, ...]) -> Population:
    absent = absent_population({"nobody"}, examples(0, 0), Streams(0), 2)
    return replace(absent, clients=clients)


def all_clients() -> tuple[Client, ...]:
    names = {f"client-{i:04}" for i in range(2 * MARKED_EVERY + 9)}
    absent = absent_population(names, examples(0, 0), Streams(0), 2).clients
    return tuple(
        replace(client, train=examples(1 + i % 2, i), holdout=examples(i % 3, 7 * i))
        for i, client in enumerate(absent)
    )


ALL = all_clients()
changes = st.lists(
    st.tuples(
        st.sampled_from(["leaves", "changes", "comes", "swaps", "nothing"]),
        st.integers(0, len(ALL) - 1),
    ),
    min_size=1,
    max_size=6,
)


@given(changes)
def test_it_is_the_hash_of_whoever_is_there_now(steps):
    hashes, clients = DataHashes(), ALL
    for what, at in steps:
        i = at % len(clients)
        match what:
            case "leaves":
                clients = clients[:i] + clients[i + 1 :]
            case "changes":
                clients = (
                    *clients[:i],
                    replace(clients[i], train=examples(2, -at)),
                    *clients[i + 1 :],
                )
            case "swaps":
                clients = (*clients[:i], replace(clients[i], handle=f"h-{at}"), *clients[i + 1 :])
            case "comes":
                clients = (*clients, replace(ALL[at], handle=f"h-new-{at}"))
            case _:
                pass
        assert hashes.of(population(clients)) == data_hash(population(clients)) != ""


def test_it_is_one_hash_over_handles_and_examples():
    digest = hashlib.sha256()
    for client in ALL:
        digest.update(client.handle.encode())
        for held in (client.train, client.holdout):
            digest.update(held.inputs.numpy().tobytes())
            digest.update(held.labels.numpy().tobytes())
    assert data_hash(population(ALL)) == digest.hexdigest()
    away = tuple(replace(c, train=examples(0, 0)) for c in ALL)
    assert data_hash(population(away)) == ""
