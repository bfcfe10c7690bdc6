"""Named random streams: every draw has a name, and depends on nothing but that name.

A stream is addressed by a path of words and numbers under one root seed. Two different
paths are independent; the same path always gives the same draws, whatever was drawn
elsewhere, in which order, and by how many workers.

What no one may recompute (who speaks for an anonymity set, which noise hides it) is drawn
from the hidden twin of a node, under a root that may be a secret of the operating system
instead of the seed. Under a secret they come from a cryptographic generator, and noisy
values are rounded to a grid.
"""

import hashlib
import json
import math
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from torch import Tensor

_WORD = np.dtype("<u4")
_ONE = np.uint64(1)  # numpy 1 takes 0-d arrays of uint64 with no Python number

GRID = 4
"""A standard deviation of noise has 2^4 to 2^5 steps of the grid."""


@dataclass(frozen=True, slots=True)
class Streams:
    """A node in the tree of random streams of one run.

    Attributes:
        secret: root of the hidden streams, 256 bits; None: they derive from the seed, and
            a holder of the seed can recompute them.

    >>> streams = Streams(seed=0)
    >>> order = streams.at("local training", 3, "client-00017").generator()
    """

    seed: int
    path: tuple[str | int, ...] = ()
    secret: int | None = field(default=None, repr=False)

    def at(self, *names: str | int) -> "Streams":
        """Return the node reached by going down these names."""
        return Streams(self.seed, (*self.path, *names), self.secret)

    def hidden(self) -> "Streams":
        """Return this node's twin for draws that must stay unknown."""
        root = self.seed if self.secret is None else self.secret
        return Streams(root, ("hidden", *self.path))

    def digest(self) -> bytes:
        """Return SHA-256 over the seed and the path: 32 bytes unique to this node."""
        return hashlib.sha256(json.dumps([self.seed, *self.path]).encode()).digest()

    def generator(self) -> np.random.Generator:
        """Return a fresh generator at the start of this stream."""
        # The number that the digest is, in the words that numpy would cut it into, slowly.
        words = np.frombuffer(self.digest()[::-1], _WORD)
        seed = words if words[-1] else np.trim_zeros(words, "b")
        return np.random.Generator(np.random.PCG64(seed))  # `default_rng`, without its questions

    def draws(self) -> "Draws":
        """Return a fresh generator of the hidden twin: cryptographic under a secret."""
        if self.secret is None:
            return self.hidden().generator()
        return SecretDraws(self.hidden().digest())

    @contextmanager
    def lent_to_torch(self) -> Generator[None]:
        """Seed torch's global generator inside the block, and put the old one back.

        For code that we do not own and that draws globally: `nn.Module` constructors.
        Not for threads, which share that generator.
        """
        with torch.random.fork_rng(devices=[]):
            seed = int.from_bytes(self.digest()[:8], "big")
            torch.manual_seed(seed)  # noqa: TID251 - the one place, undone on exit
            yield


class SecretDraws:
    """Draws from ChaCha20's stream: who sees some can foretell or recompute no other.

    It has the methods of numpy's generators that hidden draws need. A number of the stream
    has 64 bits, and one is taken for each draw.

    Args:
        key: 32 bytes that are used for nothing else.

    References:
        Holohan, Braghin, Secure Random Sampling in Differential Privacy, 2021.
    """

    def __init__(self, key: bytes) -> None:
        self._stream = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor()

    def random(self, size: tuple[int, ...] = ()) -> np.ndarray:
        """Return uniform numbers: odd multiples of 2^-53 in (0, 1)."""
        return np.asarray(((self._words(size) >> np.uint64(12)) + 0.5) * 2.0**-52)

    def integers(self, high: int) -> int:
        """Return one of 0 .. high - 1."""
        return int(self.random() * high)

    def gumbel(self, *, size: tuple[int, ...]) -> np.ndarray:
        """Return standard Gumbel numbers, -ln(-ln U)."""
        return -np.log(-np.log(self.random(size)))

    def normal(self, mean: float, std: float, size: tuple[int, ...]) -> np.ndarray:
        """Return Gaussian numbers: mean + std S Phi^-1(U).

        S is a sign, and U in (0, 1/2] an odd multiple of 2^-65, rounded to 53 significant
        bits: what is beyond 9.15 standard deviations, with a probability of 2^-64, is
        never drawn.
        """
        from scipy.special import ndtri

        words = self._words(size)
        half = ndtri(((words >> _ONE) + 0.5) * 2.0**-64)
        return np.asarray(mean + std * np.where(words & _ONE, half, -half))

    def laplace(self, mean: float, scale: float, size: tuple[int, ...]) -> np.ndarray:
        """Return Laplace numbers: mean - scale S ln U.

        S is a sign, and U in (0, 1) an odd multiple of 2^-64, rounded to 53 significant
        bits: what is beyond 44.4 scales, with a probability of 2^-64, is never drawn.
        """
        words = self._words(size)
        length = -np.log(((words >> _ONE) + 0.5) * 2.0**-63)
        return np.asarray(mean + scale * np.where(words & _ONE, length, -length))

    def _words(self, size: tuple[int, ...]) -> np.ndarray:
        return self.words(math.prod(size)).reshape(size)

    def words(self, count: int) -> np.ndarray:
        """Return whole numbers of 64 random bits."""
        return np.frombuffer(self._stream.update(bytes(8 * count)), "<u8")


Draws = np.random.Generator | SecretDraws
"""A generator of hidden draws: seeded, or secret."""


def words_of(draws: Draws, count: int) -> np.ndarray:
    """Return so many whole numbers of 64 random bits."""
    if isinstance(draws, SecretDraws):
        return draws.words(count)
    return draws.integers(2**64, size=count, dtype=np.uint64)


def with_noise(value: Tensor, noise: np.ndarray, std: float, draws: Draws) -> Tensor:
    """Return a value under its noise, in the value's type; secret noise ends on a grid.

        h round((value + noise) / h),    h = 2^(floor(log2 std) - 4)

    Without a grid, low bits betray the value: not every floating-point number is the value
    plus a number that a generator can draw, and those that are differ from value to value.
    h follows from `std` alone, and rounding looks at nothing but the sum: it takes nothing
    from a guarantee of the ideal Gaussian mechanism. Nor do roundings of the sum to 53
    bits before it, and to the value's type after it.

    What is left is that the noise is not quite normal. A boundary of the grid is passed
    with a probability within 2^-52 of the ideal one; added up over the grid, this is a
    total variation below 2^-44 for each coordinate of each release, which adds to delta:
    below 6e-6 for a million coordinates in a hundred releases. The grid itself adds at
    most 1/3072 to the variance.

    Args:
        value: floats, or whole numbers.
        noise: drawn for it, of its shape; whole numbers for whole numbers.
        std: its standard deviation, which is public wherever an epsilon is printed.
        draws: what drew it; seeded noise is added as it is.

    References:
        Mironov, On Significance of the Least Significant Bits for Differential Privacy,
        2012: the attack, and rounding to a grid that is known beforehand.
        Canonne, Kamath, Steinke, The Discrete Gaussian for Differential Privacy, 2020:
        noise that is drawn on a grid, and exact.
    """
    drawn = torch.from_numpy(np.asarray(noise))
    if isinstance(draws, np.random.Generator):
        return value + drawn.to(value)
    step = math.ldexp(1.0, math.frexp(std)[1] - 1 - GRID)
    steps = (value.double() + drawn.to(value.device)) / step
    return (steps.round() * step).to(value)
