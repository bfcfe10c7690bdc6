"""Two lists of survivors: how many on the server's side take a client's masks off."""

from collections.abc import Collection
from dataclasses import replace

import numpy as np
import pytest

from covey.secure_sums.client import ClientRound
from covey.secure_sums.crypto import Pairs, add_stream, private_key, seed_key
from covey.secure_sums.messages import (
    Agreement,
    Agreements,
    MaskedInput,
    RefusedError,
    Survivors,
    Terms,
    Unmasking,
    secret_from,
)
from secure_sums.playing import LENGTH, Playing, identities, numbers, terms


def is_unmasked(agreed: Terms, clients: int, colluders: int) -> bool:
    """Say whether a server that shows two lists, and colluders, get a client's numbers.

    Half of the others are shown that the client survived, half that it did not. Colluders
    sign and open both.
    """
    values = numbers(clients)
    victim, *others = values
    honest, bad = others[: clients - 1 - colluders], others[clients - 1 - colluders :]
    playing = Playing.of(values, agreed).keys().shares().masked()
    half = len(honest) // 2
    seed = opened(playing, [*honest[:half], *bad], [victim], [victim, *others], victim)
    key = opened(playing, [*honest[half:], *bad], [], others, victim)
    if seed is None or key is None:
        return False
    sent = MaskedInput.from_bytes(playing.sent["masked"][victim], agreed, clients)
    left = np.frombuffer(sent.numbers, "<u8").copy()
    add_stream(left, seed_key(seed, agreed), sign=-1)
    pairs = Pairs(agreed, playing.server.roster)
    for other in others:
        minus = np.zeros_like(left)
        pairs.add_mask(minus, private_key(key), victim, other)
        left -= minus
    return np.array_equal(left, values[victim].astype("<u8"))


def opened(
    playing: Playing,
    shown: Collection[str],
    signing: Collection[str],
    survivors: Collection[str],
    victim: str,
) -> bytes | None:
    """Return the victim's secret, if enough of those who are shown these survivors open."""
    known, sides = identities(playing.values), dict(playing.sides)
    survivor_list = Survivors(playing.terms.session, tuple(sorted(survivors))).to_bytes()
    letter, shares = survivor_list, {}
    pairs = Pairs(playing.terms, playing.server.roster)
    if playing.terms.signed:
        signed = []
        for name in (*shown, *signing):
            sides[name], said = sides[name].agree(survivor_list, known[name])
            signed.append(Agreement.from_bytes(said, playing.terms, len(sides), name))
        letter = Agreements(playing.terms.session, tuple(signed)).to_bytes()
    for name in shown:
        try:
            said = unmasked(sides[name], letter, known[name])
        except RefusedError:
            return None
        for share in Unmasking.from_bytes(said, playing.terms, len(sides)).shares:
            if share.owner == victim:
                shares[pairs.point(name)] = share.share
    return secret_from(shares)


def unmasked(side: ClientRound, letter: bytes, own) -> bytes:
    if side.terms.signed:
        return side.unmask_signed(letter, own)[1]
    return side.unmask(letter)[1]


def test_where_nobody_signs_one_client_beside_the_server_is_enough():
    assert is_unmasked(terms(), clients=6, colluders=1)


@pytest.mark.parametrize("clients", [5, 10, 20])
def test_clients_on_machines_of_their_own_hold_against_less_than_a_fifth(clients):
    agreed = replace(Terms.new(LENGTH, 3), session=bytes(range(32)))
    colluders = -(-clients // 5) - 1
    assert not is_unmasked(agreed, clients, colluders)
    signed_by_half = replace(agreed, majority=0.5)
    if clients >= 14:
        assert is_unmasked(signed_by_half, clients, colluders)


def test_three_in_ten_may_drop_out():
    agreed = Terms.new(LENGTH, 3)
    for clients in range(3, 41):
        stay = clients - int(0.3 * clients)
        assert stay - 1 >= agreed.threshold(clients)  # of a survivor, without itself
        assert stay >= agreed.quorum(clients)
