from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from covey.rng import Streams

seeds = st.integers(0, 2**63)
names = st.text(max_size=6) | st.integers(-5, 10**6)
paths = st.lists(names, max_size=3).map(tuple)


def draws(streams: Streams) -> list[int]:
    return streams.generator().integers(2**62, size=4).tolist()


@given(seeds, paths)
def test_the_same_path_gives_the_same_draws(seed: int, path: tuple[str | int, ...]):
    assert draws(Streams(seed).at(*path)) == draws(Streams(seed, path))


@given(seeds, paths, names)
def test_going_down_step_by_step_is_going_down_at_once(
    seed: int, path: tuple[str | int, ...], name: str | int
):
    assert Streams(seed).at(*path).at(name) == Streams(seed).at(*path, name)


# Two different digests give equal draws (4 times 62 bits) with probability 2^-248.
@given(seeds, paths, paths)
def test_different_paths_give_different_draws(
    seed: int, one: tuple[str | int, ...], other: tuple[str | int, ...]
):
    same = [(type(name), name) for name in one] == [(type(n), n) for n in other]
    assert (draws(Streams(seed, one)) == draws(Streams(seed, other))) == same


@given(seeds, seeds, paths)
def test_a_different_seed_changes_every_stream(
    one: int, other: int, path: tuple[str | int, ...]
):
    equal = draws(Streams(one, path)) == draws(Streams(other, path))
    assert equal == (one == other)


@pytest.mark.parametrize(
    ("one", "other"),
    [(("1",), (1,)), (("ab",), ("a", "b")), ((), ("",)), ((1, 23), (12, 3))],
)
def test_paths_that_read_alike_are_different_paths(
    one: tuple[str | int, ...], other: tuple[str | int, ...]
):
    assert Streams(0, one).digest() != Streams(0, other).digest()


def test_the_seed_is_no_part_of_the_path():
    assert Streams(1, (2,)).digest() != Streams(2, (1,)).digest()
    assert Streams(0).at(0).digest() != Streams(0).digest()


def test_adding_a_client_changes_no_other_clients_draws():
    def of(clients: int) -> dict[str, list[int]]:
        root = Streams(0).at("local training", 3)
        return {f"client-{i}": draws(root.at(f"client-{i}")) for i in range(clients)}

    assert {name: of(6)[name] for name in of(5)} == of(5)


def test_drawing_elsewhere_changes_nothing():
    root = Streams(0)
    expected = draws(root.at("a"))
    root.generator().random(100)
    root.at("b").generator().random(7)
    assert draws(root.at("a")) == expected


@given(seeds, paths)
def test_without_a_secret_the_hidden_twin_follows_from_the_seed(
    seed: int, path: tuple[str | int, ...]
):
    twin = Streams(seed).at(*path).hidden()
    assert draws(twin) == draws(Streams(seed, path).hidden())
    assert draws(twin) != draws(Streams(seed, path))
    assert draws(twin) != draws(Streams(seed + 1, path).hidden())


@given(seeds, paths, st.integers(0, 2**256 - 1))
def test_a_secret_changes_the_hidden_draws_and_no_public_one(
    seed: int, path: tuple[str | int, ...], secret: int
):
    public = Streams(seed, path)
    kept = Streams(seed, secret=secret).at(*path)
    assert draws(kept) == draws(public)
    assert (draws(kept.hidden()) == draws(public.hidden())) == (secret == seed)
    assert draws(kept.hidden()) == draws(replace(kept, seed=seed + 1).hidden())
    assert draws(kept.hidden()) != draws(replace(kept, secret=secret + 1).hidden())


@given(paths, paths)
def test_the_twins_of_different_paths_are_different(
    one: tuple[str | int, ...], other: tuple[str | int, ...]
):
    root = Streams(0, secret=7)
    same = root.at(*one).digest() == root.at(*other).digest()
    assert (draws(root.at(*one).hidden()) == draws(root.at(*other).hidden())) == same


def test_the_secret_is_told_to_nobody():
    secret = 0x5EC2E7 << 200
    kept = Streams(3, ("a",), secret)
    assert repr(kept) == "Streams(seed=3, path=('a',))"
    assert str(secret) not in str(kept.at("b"))
    assert kept.at("b").secret == secret
    assert draws(kept.hidden().at("b")) == draws(kept.hidden().at("b"))


def test_a_twin_does_not_carry_the_secret_on():
    # what is handed on for hidden draws cannot be turned back into public streams
    assert Streams(3, ("a",), 9).hidden().secret is None


def test_torch_borrows_the_stream_and_gives_its_own_state_back():
    before = torch.get_rng_state()
    with Streams(0).at("x").lent_to_torch():
        first = torch.rand(3)
    with Streams(0).at("x").lent_to_torch():
        again = torch.rand(3)
    with Streams(0).at("y").lent_to_torch():
        other = torch.rand(3)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), before)


def test_torch_gets_its_state_back_after_an_error():
    def fails() -> None:
        with Streams(0).lent_to_torch():
            torch.rand(3)
            raise KeyError

    before = torch.get_rng_state()
    with pytest.raises(KeyError):
        fails()
    assert torch.equal(torch.get_rng_state(), before)


def test_numpys_global_state_is_untouched():
    def state() -> np.ndarray:
        return np.random.get_state(legacy=False)["state"]["key"]  # noqa: NPY002

    before = state()
    draws(Streams(0).at("x"))
    assert np.array_equal(state(), before)
