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
from torch.utils.data import DataLoader

from covey.auditor.result import ModelAudit
from covey.base.errors import DataError
from covey.data.arrays import examples_of, form_of
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


def records_of(members: Any, non_members: Any, label: str = "") -> Records:  # noqa: ANN401
    """Return the records of both sides; inputs that both hold are judged on neither.

    Args:
        members: what the model was trained on, as `covey.run` takes one client's data, or
            whatever else yields (input, label), a loader's batches among them.
        non_members: what it was not.
        label: the column of labels, where they are tables.

    Raises:
        DataError: a side is no set of examples, they are unlike each other, or their
            labels are no classes.
    """
    inside = _classified("members", examples_of("members", _gathered(members), label))
    outside = _classified("non_members", examples_of("non_members", _gathered(non_members), label))
    ours, theirs = ((tuple(each.inputs.shape[1:]), each.inputs.dtype) for each in (inside, outside))
    if ours != theirs:
        raise DataError(
            f"members and non_members must hold inputs of one shape and type, found "
            f"{ours[0]} of {ours[1]} and {theirs[0]} of {theirs[1]}. Prepare both alike."
        )
    everything = Examples.joined([inside, outside])
    inputs, names = (hashes(everything.inputs), hashes(everything.inputs, everything.labels))
    both = set(inputs[: len(inside)]) & set(inputs[len(inside) :])
    kept = [place for place, each in enumerate(inputs) if each not in both]
    places = np.array(sorted(kept, key=names.__getitem__), dtype=np.int64)
    everything = everything.take(torch.from_numpy(places))
    return Records(
        examples=everything,
        member=places < len(inside),
        places=places,
        offered=len(inside),
        shared=len(inputs) - len(kept),
        digest=blake2b(b"".join(names) + str(len(inside)).encode(), digest_size=8).hexdigest(),
    )


def _gathered(data: Any) -> Any:  # noqa: ANN401 - whatever iterates
    """Return what can only be iterated as what `examples_of` reads."""
    if isinstance(data, DataLoader):
        batches: list[Any] = list(cast(Iterable[Any], data))
        if batches and isinstance(batches[0], Mapping):
            return {name: torch.cat([each[name] for each in batches]) for name in batches[0]}
        return tuple(torch.cat(column) for column in zip(*batches, strict=True))
    iterates = isinstance(data, Iterable) and not isinstance(data, (str, bytes, tuple))
    return list(cast(Iterable[Any], data)) if form_of(data) is None and iterates else data


def _classified(side: str, examples: Examples) -> Examples:
    labels = examples.labels
    if examples.layout is not None:
        raise DataError(
            f"{side} must bring one tensor of inputs, found several: {examples.layout}. Join "
            f"them in one tensor, which the model that is audited parts."
        )
    if labels.dim() != 1 or labels.is_floating_point() or (labels < 0).any():
        raise DataError(
            f"{side} must bring labels that are class numbers from 0, one per record: the "
            f"attacks need the probability of the true class. Found {tuple(labels.shape)} "
            f"of {labels.dtype}. Number the classes 0, 1, 2 ... as whole numbers."
        )
    return examples
