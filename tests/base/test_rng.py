"""Streams of draws: by seed, path and secret."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest

from covey import Streams
from covey.base.rng import with_noise

SECRET = Streams(0, secret=7)

seeds = st.integers(0, 2**63)
names = st.text(max_size=6) | st.integers(-5, 10**6)
paths = st.lists(names, max_size=3).map(tuple)


def draws(streams: Streams) -> list[int]:
    return streams.generator().integers(2**62, size=4).tolist()


@given(seeds, paths)
def test_the_same_path_gives_the_same_draws(seed, path):
    assert draws(Streams(seed).at(*path)) == draws(Streams(seed, path))


# Two different digests give equal draws (4 times 62 bits) with probability 2^-248.
@given(seeds, paths, paths)
def test_different_paths_give_different_draws(seed, one, other):
    same = [(type(name), name) for name in one] == [(type(n), n) for n in other]
    assert (draws(Streams(seed, one)) == draws(Streams(seed, other))) == same


@given(seeds, paths, st.integers(0, 2**256 - 1))
def test_a_secret_changes_the_hidden_draws_and_no_public_one(seed, path, secret):
    public = Streams(seed, path)
    hidden = Streams(seed, secret=secret).at(*path)
    assert draws(hidden) == draws(public)
    assert (draws(hidden.hidden()) == draws(public.hidden())) == (secret == seed)
    assert draws(hidden.hidden()) == draws(replace(hidden, seed=seed + 1).hidden())
    assert draws(hidden.hidden()) != draws(replace(hidden, secret=secret + 1).hidden())


def test_the_secret_is_revealed_to_nobody():
    secret = 0x5EC2E7 << 200
    hidden = Streams(3, ("a",), secret)
    assert repr(hidden) == "Streams(seed=3, path=('a',))"
    assert str(secret) not in str(hidden.at("b"))
    assert hidden.at("b").secret == secret
    assert draws(hidden.hidden().at("b")) == draws(hidden.hidden().at("b"))


@given(seeds, paths)
def test_seeded_draws_are_numpys_of_the_hidden_twin(seed, path):
    drawn = Streams(seed, path).draws()
    twin = Streams(seed, path).hidden().generator()
    assert isinstance(drawn, np.random.Generator)
    assert drawn.random(5).tolist() == twin.random(5).tolist()


@given(paths, paths)
def test_secret_draws_are_fixed_by_secret_and_path(one, other):
    def of(streams: Streams) -> list[float]:
        return streams.draws().random((4,)).tolist()

    at = SECRET.at(*one)
    assert of(at) == of(replace(at, seed=1))
    assert of(at) != of(replace(at, secret=8))
    assert of(at) != at.hidden().generator().random(4).tolist()
    assert (of(at) == of(SECRET.at(*other))) == (at.digest() == SECRET.at(*other).digest())


DRAWS = 200_000


@pytest.mark.parametrize(
    ("law", "drawn"),
    [
        ("uniform", SECRET.at("u").draws().random((DRAWS,))),
        ("norm", SECRET.at("n").draws().normal(0.0, 3.0, (DRAWS,)) / 3),
        ("laplace", SECRET.at("l").draws().laplace(0.0, 3.0, (DRAWS,)) / 3),
        ("gumbel_r", SECRET.at("g").draws().gumbel(size=(DRAWS,))),
    ],
)
def test_secret_draws_follow_their_law(law, drawn):
    # false alarm: 1e-4 each
    assert kstest(drawn, law).pvalue > 1e-4
    halves = np.corrcoef(drawn[::2], drawn[1::2])[0, 1]
    assert abs(halves) < 4 / (DRAWS / 2) ** 0.5


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6), st.floats(1e-6, 1e6), st.integers(0, 99))
def test_any_two_values_are_released_on_the_same_grid(one, other, std, secret):
    step = 2.0 ** (math.floor(math.log2(std)) - 4)
    for value, dtype in ((one, torch.float64), (other, torch.float32)):
        draws = Streams(0, secret=secret).draws()
        exact = torch.full((20,), value, dtype=dtype)
        noise = draws.normal(0.0, std, (20,))
        noisy = with_noise(exact, noise, std, draws)
        assert noisy.dtype == dtype
        assert torch.equal(noisy / step % 1, torch.zeros(20, dtype=dtype))
        # beside the grid's, float32 has its own rounding
        off = (noisy.double() - exact.double() - torch.from_numpy(noise)).abs().max()
        assert float(off) <= step / 2 + abs(value) * 2.0**-23 + 8 * std * 2.0**-23


@pytest.mark.parametrize("zeros", [0, 1, 3, 4, 5, 9, 31])
def test_a_stream_is_seeded_by_the_number_that_its_digest_is(monkeypatch, zeros):
    digest = bytes(zeros) + Streams(0).digest()[zeros:]
    monkeypatch.setattr(Streams, "digest", lambda _: digest)

    seeded = np.random.default_rng(int.from_bytes(digest, "big"))

    assert Streams(0).generator().integers(2**62) == seeded.integers(2**62)
