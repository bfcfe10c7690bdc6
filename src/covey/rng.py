"""Named random streams: every draw has a name, and depends on nothing but that name.

A stream is addressed by a path of words and numbers under one root seed. Two different
paths are independent; the same path always gives the same draws, whatever was drawn
elsewhere, in which order, and by how many workers.

What nobody may recompute (who speaks for an anonymity set, which noise hides it) is drawn
from the hidden twin of a node, under a root that may be a secret of the operating system
instead of the seed.
"""

import hashlib
import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
import torch

__all__ = ["Streams"]


@dataclass(frozen=True, slots=True)
class Streams:
    """A node in the tree of random streams of one run.

    Attributes:
        secret: root of the hidden streams, 256 bits; None: they derive from the seed, and
            whoever holds the seed can recompute them.

    >>> streams = Streams(seed=0)
    >>> order = streams.at("local training", 3, "client-00017").generator()
    """

    seed: int
    path: tuple[str | int, ...] = ()
    secret: int | None = field(default=None, repr=False)

    def at(self, *names: str | int) -> "Streams":
        """Return the node reached by going down these names."""
        return replace(self, path=(*self.path, *names))

    def hidden(self) -> "Streams":
        """Return this node's twin for draws that must stay unknown."""
        root = self.seed if self.secret is None else self.secret
        return Streams(root, ("hidden", *self.path))

    def digest(self) -> bytes:
        """Return SHA-256 over the seed and the path: 32 bytes unique to this node."""
        return hashlib.sha256(json.dumps([self.seed, *self.path]).encode()).digest()

    def generator(self) -> np.random.Generator:
        """Return a fresh generator at the start of this stream."""
        return np.random.default_rng(int.from_bytes(self.digest(), "big"))

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
