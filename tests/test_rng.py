import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest

from covey import Streams
from covey.base.rng import SecretDraws, with_noise

SECRET = Streams(0, secret=7)

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
def test_a_different_seed_changes_every_stream(one: int, other: int, path: tuple[str | int, ...]):
    equal = draws(Streams(one, path)) == draws(Streams(other, path))
    assert equal == (one == other)


@pytest.mark.parametrize(
    ("one", "other"), [(("1",), (1,)), (("ab",), ("a", "b")), ((), ("",)), ((1, 23), (12, 3))]
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


@given(seeds, paths)
def test_seeded_draws_are_numpys_of_the_hidden_twin(seed: int, path: tuple[str | int, ...]):
    drawn = Streams(seed, path).draws()
    twin = Streams(seed, path).hidden().generator()
    assert isinstance(drawn, np.random.Generator)
    assert drawn.random(5).tolist() == twin.random(5).tolist()


@given(paths, paths)
def test_secret_draws_are_fixed_by_secret_and_path(
    one: tuple[str | int, ...], other: tuple[str | int, ...]
):
    def of(streams: Streams) -> list[float]:
        return streams.draws().random((4,)).tolist()

    at = SECRET.at(*one)
    assert of(at) == of(replace(at, seed=1))
    assert of(at) != of(replace(at, secret=8))
    assert of(at) != at.hidden().generator().random(4).tolist()
    assert (of(at) == of(SECRET.at(*other))) == (at.digest() == SECRET.at(*other).digest())


def test_the_first_uniform_number_by_hand():
    # ChaCha20 of zeros begins 76 b8 e0 ad a0 f1 3d 90 (RFC 8439, A.1, test vector 1)
    word = 0x903DF1A0ADE0B876
    assert float(SecretDraws(bytes(32)).random()) == ((word >> 12) + 0.5) / 2**52


class Extreme(SecretDraws):
    """The words at which a uniform number is next to 0, 1/2 and 1."""

    def __init__(self) -> None:
        self.words = np.array([0, 1, 2, 3, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1], np.uint64)

    def _words(self, size: tuple[int, ...]) -> np.ndarray:
        return self.words


def test_no_word_gives_an_infinite_number():
    uniform = Extreme().random((8,))
    assert 0 < uniform.min() == 2.0**-53
    assert uniform.max() == 1 - 2.0**-53
    assert np.isfinite(Extreme().gumbel(size=(8,))).all()
    normal = Extreme().normal(0.0, 1.0, (8,))
    assert normal[0] == -normal[1] == pytest.approx(9.155, abs=1e-3)
    assert normal[-1] == normal[-2] == 0
    for high in (1, 2, 3, 5, 2**40 + 1):
        assert max(int(each * high) for each in uniform) == high - 1


DRAWS = 200_000


@pytest.mark.parametrize(
    ("law", "drawn"),
    [
        ("uniform", SECRET.at("u").draws().random((DRAWS,))),
        ("norm", SECRET.at("n").draws().normal(0.0, 3.0, (DRAWS,)) / 3),
        ("gumbel_r", SECRET.at("g").draws().gumbel(size=(DRAWS,))),
    ],
)
def test_secret_draws_follow_their_law(law: str, drawn: np.ndarray):
    # false alarm: 1e-4 each
    assert kstest(drawn, law).pvalue > 1e-4
    halves = np.corrcoef(drawn[::2], drawn[1::2])[0, 1]
    assert abs(halves) < 4 / (DRAWS / 2) ** 0.5


def test_moments_of_secret_noise_and_independence_of_nodes():
    one, other = (SECRET.at(i).draws().normal(0.0, 1.0, (DRAWS,)) for i in range(2))
    assert not set(one) & set(other)
    # 4 standard errors of E x, x^2, x^3, x^4 under N(0, 1), and of a correlation
    for power, mean, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        error = (variance / DRAWS) ** 0.5
        assert (one**power).mean() == pytest.approx(mean, abs=4 * error)
    for left, right in ((one, other), (one**2, other**2)):
        assert abs(np.corrcoef(left, right)[0, 1]) < 4 / DRAWS**0.5


def test_every_member_is_drawn_as_often_as_any_other():
    drawn = SECRET.draws()
    members = np.array([drawn.integers(6) for _ in range(6000)])
    counts = np.bincount(members, minlength=6)
    assert ((counts - 1000) ** 2 / 1000).sum() < 25.7  # 5 degrees of freedom: p = 1e-4


def released(value: float, streams: Streams) -> torch.Tensor:
    draws = streams.draws()
    values = torch.full((DRAWS,), value)
    return with_noise(values, draws.normal(0.0, 1.0, (DRAWS,)), 1.0, draws).double()


def is_fine(values: torch.Tensor) -> torch.Tensor:
    """The event: a small value that is no multiple of 2^-26."""
    return (values.abs() < 1 / 16) & (values * 2**26 % 1 != 0)


def test_low_bits_betray_a_value_without_a_grid_and_nothing_with_one():
    """1/3 plus a float32 near -1/3 is a multiple of 2^-26; 0 plus a small one is not.

    So the event has a chance of 5% or of 0, whatever epsilon says.
    """
    seeded = [is_fine(released(x, Streams(0))).float().mean() for x in (0.0, 1 / 3)]
    assert float(seeded[0]) > 0.04
    assert float(seeded[1]) == 0
    one, other = released(0.0, SECRET.at(0)), released(1 / 3, SECRET.at(1))
    assert not is_fine(one).any()
    assert not is_fine(other).any()
    # both cases give multiples of 1/16, and each of them within 3 deviations
    for values in (one, other):
        assert torch.equal(values * 16 % 1, torch.zeros(DRAWS).double())
        assert set(range(-48, 49)) <= set((values * 16).long().tolist())


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6), st.floats(1e-6, 1e6), st.integers(0, 99))
def test_any_two_values_are_released_on_the_same_grid(
    one: float, other: float, std: float, secret: int
):
    step = 2.0 ** (math.floor(math.log2(std)) - 4)
    for value, dtype in ((one, torch.float64), (other, torch.float32)):
        draws = Streams(0, secret=secret).draws()
        exact = torch.full((20,), value, dtype=dtype)
        noise = draws.normal(0.0, std, (20,))
        found = with_noise(exact, noise, std, draws)
        assert found.dtype == dtype
        assert torch.equal(found / step % 1, torch.zeros(20, dtype=dtype))
        # beside the grid's, float32 has its own rounding
        off = (found.double() - exact.double() - torch.from_numpy(noise)).abs().max()
        assert float(off) <= step / 2 + abs(value) * 2.0**-23 + 8 * std * 2.0**-23


@given(st.integers(-(2**50), 2**50), st.integers(1, 2**40))
def test_whole_numbers_stay_whole(value: int, std: int):
    draws = SECRET.draws()
    noise = np.rint(draws.normal(0.0, float(std), (20,)))
    found = with_noise(torch.full((20,), value), noise, float(std), draws)
    assert found.dtype == torch.int64
    step = 2 ** max(math.floor(math.log2(std)) - 4, 0)
    assert not (found % step).any()
    assert int((found - value - torch.from_numpy(noise).long()).abs().max()) <= step / 2


def test_seeded_noise_is_added_as_it_is():
    draws = Streams(0).draws()
    noise = draws.normal(0.0, 1.0, (20,))
    found = with_noise(torch.full((20,), 1 / 3), noise, 1.0, draws)
    assert torch.equal(found, torch.full((20,), 1 / 3) + torch.from_numpy(noise).float())


@pytest.mark.parametrize("zeros", [0, 1, 3, 4, 5, 9, 31])
def test_a_stream_is_seeded_by_the_number_that_its_digest_is(
    monkeypatch: pytest.MonkeyPatch, zeros: int
) -> None:
    digest = bytes(zeros) + Streams(0).digest()[zeros:]
    monkeypatch.setattr(Streams, "digest", lambda _: digest)

    seeded = np.random.default_rng(int.from_bytes(digest, "big"))

    assert Streams(0).generator().integers(2**62) == seeded.integers(2**62)
