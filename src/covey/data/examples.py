"""Labelled examples as tensors, and what clients made of them look like."""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from covey.base.names import ClientName, Handle


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Examples:
    """Inputs with their labels: images stay uint8, features are float32, ids are int64.

    Images are (examples, channels, height, width) in [0, 255]. Labels are class numbers,
    or several 0 or 1 per example (examples, labels), or float32 numbers.
    """

    inputs: Shaped[Tensor, "examples ..."]
    labels: Shaped[Tensor, "examples *label"]

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return f"Examples({tuple(self.inputs.shape)}, {self.inputs.dtype})"

    def take(self, indices: Int[Tensor, " chosen"]) -> "Examples":
        """Return the examples at these positions, in this order."""
        return Examples(self.inputs[indices], self.labels[indices])

    @classmethod
    def joined(cls, sets: "Sequence[Examples]") -> "Examples":
        """Return the examples of all sets, one set after the other."""
        return cls(
            torch.cat([each.inputs for each in sets]), torch.cat([each.labels for each in sets])
        )

    def first(self, count: int) -> "Examples":
        """Return the first `count` examples."""
        return Examples(self.inputs[:count], self.labels[:count])


class TrainTest(NamedTuple):
    """One client's examples, and those that it holds out: it never trains on them."""

    train: Examples
    test: Examples


def to_floats(inputs: Shaped[Tensor, "*shape"]) -> Shaped[Tensor, "*shape"]:
    """Return what a model sees: images scaled to [0, 1], all else as it is.

    Whole numbers of 64 bits stay whole: they are ids, for an embedding.
    """
    if inputs.dtype == torch.uint8:
        return inputs.float().div_(255)
    return inputs


def hashes(*columns: Shaped[Tensor, "examples ..."]) -> list[bytes]:
    """Return a hash of each example's values in these columns, bit for bit."""
    rows = zip(*(column.numpy() for column in columns), strict=True)
    return [blake2b(b"".join(x.tobytes() for x in row), digest_size=16).digest() for row in rows]


@dataclass(frozen=True, slots=True)
class Preference:
    """What a client accepts.

    Attributes:
        risk_weight: beta in [0, 1], the share of the risk in the client's cost.
        risk_threshold: tau, the highest MIA accuracy (TPR + TNR) / 2 it accepts.
    """

    risk_weight: float
    risk_threshold: float


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Client:
    """The owner of one private data set.

    Attributes:
        group: index of the data distribution, known in simulations only.
        train: the members: what the client trains on.
        holdout: reserved before training and never trained on.
    """

    name: ClientName
    handle: Handle
    group: int | None
    train: Examples
    holdout: Examples
    preference: Preference

    def __repr__(self) -> str:
        return f"Client({self.handle})"


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A data set as its publisher made it.

    Attributes:
        name: what messages call it.
        test: the publisher's test file; None where there is only one file.
        num_classes: or, where an image has several labels, how many.
        notes: what a reader of results must know: parts that were not there.
        writers: a number for whoever wrote each training image; None if unknown.
    """

    name: str
    train: Examples
    test: Examples | None
    num_classes: int
    notes: tuple[str, ...] = ()
    writers: Int[Tensor, " images"] | None = None

    @property
    def classes(self) -> Int[Tensor, " images"]:
        """Each image's class: of several labels, the one nearest to half and half."""
        labels = self.train.labels
        if labels.ndim == 1:
            return labels
        return labels[:, (labels.float().mean(dim=0) - 0.5).abs().argmin()]
