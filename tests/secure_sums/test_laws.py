"""Shamir's shares, the ring, and noise that clients add under masks, by their laws."""

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.stats import hypergeom

from covey import ConfigError, Streams
from covey.aggregation.privacy import Masks, PrivacyPlan
from covey.secure_sums import noise
from covey.secure_sums.client import overlapping
from covey.secure_sums.crypto import neighbourhood, neighbours_of, ring_order
from covey.secure_sums.messages import COEFFICIENT_BYTES, PRIME, secret_from, shares_of
from covey.secure_sums.noise import NoiseShares, S, discrete_gaussian
from covey.secure_sums.server import secure_sum
from secure_sums.playing import smallest_part

SECRET = st.binary(min_size=32, max_size=32)


def shared(secret: bytes, threshold: int, holders: int, seed: int) -> dict[int, bytes]:
    drawn = np.random.default_rng(seed).bytes(COEFFICIENT_BYTES * (threshold - 1))
    return shares_of(secret, threshold, range(1, holders + 1), drawn)


@given(SECRET, st.integers(1, 12), st.integers(0, 8), st.randoms())
def test_any_t_holders_know_the_secret(secret, threshold, more, chance):
    shares = shared(secret, threshold, threshold + more, seed=1)
    shown = dict(chance.sample(sorted(shares.items()), threshold))
    assert secret_from(shown) == secret


@given(SECRET, SECRET, st.integers(2, 9))
def test_shares_of_all_but_one_fit_every_secret(secret, other, threshold):
    """t - 1 shares and any secret at all are t points: one polynomial goes through them."""
    shares = shared(secret, threshold, threshold, seed=2)
    few = {x: share for x, share in shares.items() if x < threshold}
    distance = (int.from_bytes(other, "big") - int.from_bytes(secret, "big")) % PRIME
    above, below = 1, 1  # the polynomial that is 1 at 0, and 0 at each of the few
    for x in few:
        above, below = above * (x - threshold) % PRIME, below * x % PRIME
    last = int.from_bytes(shares[threshold], "big")
    moved = (last + distance * above * pow(below, -1, PRIME)) % PRIME
    assert secret_from({**few, threshold: moved.to_bytes(33, "big")}) == other


WORDS = st.integers(-(2**63), 2**63 - 1)


@settings(max_examples=10, deadline=None)
@given(st.lists(st.lists(WORDS, min_size=3, max_size=3), min_size=3, max_size=5))
def test_a_round_adds_as_the_ring_does(rows):
    values = {f"c{i}": np.array(row, dtype=np.int64) for i, row in enumerate(rows)}
    result = secure_sum({n: (lambda n=n: values[n]) for n in values}, 3, 3)
    expected = [sum(column) % 2**64 for column in zip(*rows, strict=True)]
    assert [int(value) % 2**64 for value in result.values] == expected
    assert result.clients == tuple(sorted(values))


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
        attack_chance = n * hypergeom(n - 1, n // 10, k).sf(k // 2)
        assert attack_chance + n * 0.4 ** (k // 2) <= 2**-40


@pytest.mark.parametrize(
    ("requested", "earlier", "answered"),
    [
        ("abc", [], False),
        ("abc", ["abc", "def"], False),
        ("abc", ["abcd"], True),
        ("abcd", ["abc"], True),
        ("abcdef", ["abc", "def"], True),
        ("abc", ["cde"], True),
    ],
)
def test_two_sums_are_the_same_or_apart(requested, earlier, answered):
    assert overlapping(frozenset(requested), map(frozenset, earlier)) is answered


def test_of_sums_that_no_client_sees_together_a_difference_tells_nothing():
    """Thirteen clients: in each view every part is of three, and yet one is alone."""
    alone, (p, q, r, s) = "V", ("abc", "def", "ghi", "jkl")
    sums = [frozenset(names) for names in (alone + p + q, q + r, p + s, r + s)]
    for client in frozenset().union(*sums):
        assert smallest_part(one for one in sums if client in one) >= 3
    assert smallest_part(sums) == 1  # first - second - third + fourth
    assert overlapping(sums[1], sums[:1])


@pytest.mark.parametrize("secret", [None, 7])
def test_draws_are_discrete_gaussian(secret):
    drawn = discrete_gaussian(200_000, Streams(0, secret=secret).at("noise").draws())
    assert drawn.dtype == np.int64
    # at this size of S the law is that of a rounded normal number, but for 1e-10
    assert stats.kstest((drawn + 0.5) / S, "norm").pvalue > 1e-3
    assert np.var(drawn) == pytest.approx(S**2, rel=0.02)


def test_a_small_grid_has_the_probabilities_of_the_definition(monkeypatch):
    """With S = 2 every number is often drawn, and a wrong weight of one shows."""
    monkeypatch.setattr(noise, "S", 2)
    drawn = discrete_gaussian(200_000, Streams(1).at("noise").draws())
    values = np.arange(-7, 8)
    weights = np.exp(-(values**2) / 8)
    expected = weights / np.exp(-(np.arange(-60, 61) ** 2) / 8).sum() * len(drawn)
    counts = np.array([(drawn == v).sum() for v in values])
    assert stats.chi2.sf(((counts - expected) ** 2 / expected).sum(), len(values) - 1) > 1e-3


def test_no_bit_hangs_on_how_well_a_float_decides(monkeypatch):
    """Whether one in a million or every second comparison is made exactly, draws are the same."""
    usual = discrete_gaussian(300, Streams(2).at("noise").draws())
    monkeypatch.setattr(noise, "DOUBT", 2.0**-20)
    careful = discrete_gaussian(300, Streams(2).at("noise").draws())
    monkeypatch.setattr(noise, "DOUBT", 2.0**-14)
    assert np.array_equal(discrete_gaussian(300, Streams(2).at("noise").draws()), careful)
    assert np.array_equal(usual, careful)


@given(bits=st.integers(0, 2**64 - 1), k=st.integers(0, 50 * S))
def test_an_exact_comparison_is_right_by_a_hundred_digits(bits, k):
    draws = Streams(3).at("more bits").draws()
    uniform = noise._Uniform(bits, 64, draws)
    said = uniform.is_below_exponential(Fraction(k, S))
    with localcontext() as context:
        context.prec = 200
        power = (-Decimal(k) / S).exp() * 2**uniform.length
        assert said == (uniform.bits + 1 <= power)
        assert said != (uniform.bits >= power)


@given(
    multiplier=st.floats(0.01, 50),
    honest=st.integers(1, 500),
    more=st.integers(0, 40),
    coordinates=st.integers(1, 10**7),
)
def test_a_sum_has_the_noise_that_is_accounted(multiplier, honest, more, coordinates):
    """By hand: m of n shares have z C, and rounding costs at most half a step an entry."""
    shares = NoiseShares(3.0, multiplier, honest)
    assert shares.step * S * math.sqrt(honest) == pytest.approx(multiplier * 3.0)
    assert shares.std(honest + more) >= multiplier * 3.0 * (1 - 1e-12)
    sensitivity = 3.0 / shares.step + math.sqrt(coordinates) / 2  # in steps
    effective = S * math.sqrt(honest) / sensitivity
    assert shares.effective_multiplier(coordinates) == pytest.approx(effective)
    assert effective < multiplier
    # with a weight w a client has less of the clip, and as much of the rounding
    light = S * math.sqrt(honest) / (0.25 * 3.0 / shares.step + math.sqrt(coordinates) / 2)
    plan = PrivacyPlan(noise=multiplier, by="distributed", masks=Masks(honest))
    assert plan.hidden_by(coordinates, 0.25) == pytest.approx(light)


def test_numbers_are_values_on_the_grid_and_noise():
    shares = NoiseShares(1.0, 0.5, 4)
    values = np.array([0.25, -0.5, 0.0])
    at = Streams(4).at("own noise")
    sent = shares.numbers(values, at.draws())
    drawn = discrete_gaussian(3, at.draws())
    assert np.array_equal(sent - drawn, np.rint(values / shares.step))
    np.testing.assert_allclose(shares.values(sent - drawn), values, atol=shares.step)


def test_whatever_a_client_has_it_adds_no_more_than_the_bound():
    shares, at = NoiseShares(1.0, 0.5, 4), Streams(6).at("own noise")
    loud = np.array([3.0, -4.0, 1e9, 0.0])
    sent = shares.numbers(loud, at.draws()) - discrete_gaussian(4, at.draws())
    length = np.linalg.norm(sent * shares.step)
    assert 1 - 2 * shares.step < length <= 1 + 2 * shares.step


def test_so_little_noise_that_sums_could_wrap_is_refused():
    shares = NoiseShares(1.0, 1e-9, 4)
    with pytest.raises(ConfigError, match=r"raise privacy\.client_noise"):
        shares.numbers(np.array([1.0]), Streams(5).draws())
