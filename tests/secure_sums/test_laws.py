"""Shamir's shares and the ring, by their laws."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import hypergeom

from covey.secure_sums.client import overlapping
from covey.secure_sums.crypto import neighbourhood, neighbours_of, ring_order
from covey.secure_sums.messages import COEFFICIENT_BYTES, PRIME, secret_from, shares_of
from covey.secure_sums.server import secure_sum
from secure_sums.playing import smallest_part

SECRET = st.binary(min_size=32, max_size=32)


def shared(secret: bytes, threshold: int, holders: int, seed: int) -> dict[int, bytes]:
    drawn = np.random.default_rng(seed).bytes(COEFFICIENT_BYTES * (threshold - 1))
    return shares_of(secret, threshold, range(1, holders + 1), drawn)


@given(SECRET, st.integers(1, 12), st.integers(0, 8), st.randoms())
def test_any_t_holders_know_the_secret(secret, threshold, more, chance):
    shares = shared(secret, threshold, threshold + more, seed=1)
    some = dict(chance.sample(sorted(shares.items()), threshold))
    assert secret_from(some) == secret


@given(SECRET, SECRET, st.integers(2, 9))
def test_shares_of_all_but_one_fit_every_secret(secret, other, threshold):
    """t - 1 shares and any secret at all are t points: one polynomial goes through them."""
    shares = shared(secret, threshold, threshold, seed=2)
    few = {x: share for x, share in shares.items() if x < threshold}
    apart = (int.from_bytes(other, "big") - int.from_bytes(secret, "big")) % PRIME
    above, below = 1, 1  # the polynomial that is 1 at 0, and 0 at each of the few
    for x in few:
        above, below = above * (x - threshold) % PRIME, below * x % PRIME
    last = int.from_bytes(shares[threshold], "big")
    moved = (last + apart * above * pow(below, -1, PRIME)) % PRIME
    assert secret_from({**few, threshold: moved.to_bytes(33, "big")}) == other


WORDS = st.integers(-(2**63), 2**63 - 1)


@settings(max_examples=10, deadline=None)
@given(st.lists(st.lists(WORDS, min_size=3, max_size=3), min_size=3, max_size=5))
def test_a_round_adds_as_the_ring_does(rows):
    values = {f"c{i}": np.array(row, dtype=np.int64) for i, row in enumerate(rows)}
    found = secure_sum({n: (lambda n=n: values[n]) for n in values}, 3, 3)
    expected = [sum(column) % 2**64 for column in zip(*rows, strict=True)]
    assert [int(each) % 2**64 for each in found.values] == expected
    assert found.clients == tuple(sorted(values))


@given(st.integers(3, 40), st.integers(1, 20))
def test_neighbours_are_mutual_and_as_many_as_said(clients, half):
    order = ring_order([str(i) for i in range(clients)], b"salt")
    degree = min(2 * half, clients - 1)
    of = {name: neighbours_of(order, name, degree) for name in order}
    for name, others in of.items():
        assert len(set(others)) == degree
        assert name not in others
        assert all(name in of[other] for other in others)


def test_neighbourhoods_grow_slowly_and_keep_their_promise():
    few, many = neighbourhood(100), neighbourhood(1_000)
    assert neighbourhood(20) >= 19
    assert few < many < 200
    for n, k in ((100, few), (1_000, many)):  # three in ten drop out, one in ten colludes
        assert n * hypergeom(n - 1, n - 1 - 3 * n // 10, k).cdf(k // 2) <= 2**-10
        tells = n * hypergeom(n - 1, n // 10, k).sf(k // 2)
        assert tells + n * 0.4 ** (k // 2) <= 2**-40


@pytest.mark.parametrize(
    ("asked", "earlier", "found"),
    [
        ("abc", [], False),
        ("abc", ["abc", "def"], False),
        ("abc", ["abcd"], True),
        ("abcd", ["abc"], True),
        ("abcdef", ["abc", "def"], True),
        ("abc", ["cde"], True),
    ],
)
def test_two_sums_are_the_same_or_apart(asked, earlier, found):
    assert overlapping(frozenset(asked), map(frozenset, earlier)) is found


def test_of_sums_that_no_client_sees_together_a_difference_tells_nothing():
    """Thirteen clients: in each view every part is of three, and yet one is alone."""
    alone, (p, q, r, s) = "V", ("abc", "def", "ghi", "jkl")
    sums = [frozenset(each) for each in (alone + p + q, q + r, p + s, r + s)]
    for each in frozenset().union(*sums):
        assert smallest_part(one for one in sums if each in one) >= 3
    assert smallest_part(sums) == 1  # first - second - third + fourth
    assert overlapping(sums[1], sums[:1])
