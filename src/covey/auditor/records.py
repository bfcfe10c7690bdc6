"""Members and non-members as one table of records."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Bool, Int, Shaped
from numpy import ndarray
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    default_collate,
    default_convert,
)

from covey.auditor.result import ModelAudit
from covey.base.errors import DataError, blamed
from covey.data.arrays import examples_of, form_of, in_order
from covey.data.examples import Client, Examples, Preference, hashes
from covey.membership.intervals import MIN_RECORDS


@dataclass(frozen=True, slots=True, eq=False)
class Records:
    """Both sides' records in the order of their hashes: no figure depends on another.

    Attributes:
        examples: as they were converted, images as uint8.
        member: which records are members.
        places: where each stood, counted through the members and then the non-members.
        offered: how many members came, judged or not.
        shared: how many records were left out because both sides hold them.
        digest: of all this, as a file may be named.
    """

    examples: Examples
    member: Bool[ndarray, " records"]
    places: Int[ndarray, " records"]
    offered: int
    shared: int
    digest: str

    @property
    def sides(self) -> Client:
        """The members as a client's examples, the others as what it holds out."""
        return self._client(self.examples.inputs)

    @property
    def numbers(self) -> Client:
        """The same, with record numbers in the place of inputs."""
        return self._client(torch.arange(len(self.examples)))

    def too_few(self) -> str:
        """Say that a side has too few records to be judged; "" if both have enough."""
        inside = int(self.member.sum())
        outside = len(self.member) - inside
        if min(inside, outside) >= MIN_RECORDS:
            return ""
        left = f", and {self.shared} on both sides" if self.shared else ""
        return (
            f"too few records: each side needs at least {MIN_RECORDS} that the other does not "
            f"hold, found {inside} members and {outside} non-members{left}. Bring more"
        )

    def without_figures(self, reason: str) -> ModelAudit:
        """Return an audit that found nothing, and why."""
        inside = int(self.member.sum())
        return ModelAudit(inside, len(self.member) - inside, self.shared, reason=reason)

    def _client(self, inputs: Shaped[Tensor, "records ..."]) -> Client:
        inside, outside = (
            torch.from_numpy(np.flatnonzero(chosen)) for chosen in (self.member, ~self.member)
        )
        records = Examples(inputs, self.examples.labels)
        return Client(
            name="the model's records",
            handle="members",
            group=None,
            train=records.take(inside),
            holdout=records.take(outside),
            preference=Preference(0.0, 1.0),
        )


def records_of(
    members: Any,  # noqa: ANN401
    non_members: Any,  # noqa: ANN401
    label: str = "",
    *,
    by_place: bool = False,
) -> Records:
    """Return the records of both sides; inputs that both hold are judged on neither.

    Args:
        members: what the model was trained on, as `covey.run` takes one client's data, or
            whatever else yields (input, label), a loader's batches among them.
        non_members: what it was not.
        label: the column of labels, where they are tables.
        by_place: whether something else names records by their places.

    Raises:
        DataError: a side is no set of examples, they are unlike each other, their labels
            are no classes, or a place is to name a record that has none.
    """
    inside, outside = (
        _classified(side, examples_of(side, _gathered(side, data, by_place=by_place), label))
        for side, data in (("members", members), ("non_members", non_members))
    )
    outside = in_order("non_members", outside, inside.columns)
    ours, theirs = (
        (tuple(examples.inputs.shape[1:]), examples.inputs.dtype) for examples in (inside, outside)
    )
    if ours != theirs:
        raise DataError(
            f"members and non_members must hold inputs of one shape and type, found {ours[0]} of "
            f"{ours[1]} and {theirs[0]} of {theirs[1]}: prepare both alike."
        )
    everything = Examples.joined([inside, outside])
    inputs, names = (hashes(everything.inputs), hashes(everything.inputs, everything.labels))
    both = set(inputs[: len(inside)]) & set(inputs[len(inside) :])
    unique = [place for place, row in enumerate(inputs) if row not in both]
    places = np.array(sorted(unique, key=names.__getitem__), dtype=np.int64)
    everything = everything.take(torch.from_numpy(places))
    return Records(
        examples=everything,
        member=places < len(inside),
        places=places,
        offered=len(inside),
        shared=len(inputs) - len(unique),
        digest=blake2b(b"".join(names) + str(len(inside)).encode(), digest_size=8).hexdigest(),
    )


def _gathered(side: str, data: Any, *, by_place: bool) -> Any:  # noqa: ANN401 - whatever iterates
    """Return what can only be iterated as what `examples_of` reads.

    A loader that draws a whole data set is read in the data set's order, and all of it; any
    other has only the order in which it draws.
    """
    if isinstance(data, DataLoader) and _draws_all(data):
        if data.collate_fn in (default_collate, default_convert):
            return data.dataset
        data, by_place = (
            DataLoader(data.dataset, data.batch_size, collate_fn=data.collate_fn),
            False,
        )
    iterates = isinstance(data, Iterable) and not isinstance(data, (str, bytes, tuple))
    if not iterates or (form_of(data) is not None and not isinstance(data, IterableDataset)):
        return data
    if by_place:
        raise DataError(
            f"{side} must stand in an order of their own, by which references or groups name "
            f"records, found a {type(data).__name__}: pass a data set or a list."
        )
    drawn: list[Any] = list(cast(Iterable[Any], data))
    if not isinstance(data, DataLoader):
        return drawn
    with blamed(DataError, f"{side}: its DataLoader", "make all batches of one shape."):
        if drawn and isinstance(drawn[0], Mapping):
            return {name: torch.cat([columns[name] for columns in drawn]) for name in drawn[0]}
        return tuple(torch.cat(column) for column in zip(*drawn, strict=True))


def _draws_all(loader: DataLoader[Any]) -> bool:
    """Say whether a loader draws every example of a data set once, in whatever order."""
    sampler: Any = loader.sampler
    shuffles = type(sampler) is RandomSampler and not sampler.replacement
    if not (shuffles or type(sampler) is SequentialSampler):
        return False
    return type(loader.batch_sampler) in (BatchSampler, type(None)) and len(sampler) == len(
        cast(Any, loader.dataset)
    )


def _classified(side: str, examples: Examples) -> Examples:
    labels = examples.labels
    if examples.layout is not None:
        raise DataError(
            f"{side} must bring one tensor of inputs, found {examples.layout}: join them in one "
            f"tensor, which the audited model parts."
        )
    if labels.dim() != 1 or labels.is_floating_point() or (labels < 0).any():
        raise DataError(
            f"{side} must bring class numbers from 0, one per record, for the true class's "
            f"probability, found {tuple(labels.shape)} of {labels.dtype}: number classes 0, 1, 2."
        )
    return examples
