"""Members and non-members as one table of records, and how a command names a model."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from jaxtyping import Bool, Int, Shaped
from numpy import ndarray
from torch import Tensor, nn

from covey.auditor.result import ModelAudit
from covey.base.component_names import find
from covey.base.errors import ConfigError, DataError, ModelError
from covey.base.files import check_regular
from covey.data.arrays import examples_of
from covey.data.examples import Client, Examples, Preference, hashes
from covey.membership.intervals import MIN_RECORDS
from covey.models.build import factory_of


@dataclass(frozen=True, slots=True, eq=False)
class Records:
    """Both sides' records in the order of their hashes: no figure depends on another.

    Attributes:
        examples: as they were converted, images as uint8.
        member: which records are members.
        places: where each stood, counted through the members and then the non-members.
        offered: how many members came, judged or not.
        shared: how many records were left out because both sides hold them.
    """

    examples: Examples
    member: Bool[ndarray, " records"]
    places: Int[ndarray, " records"]
    offered: int
    shared: int

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
        members: what the model was trained on, as `covey.run` takes one client's data.
        non_members: what it was not.
        label: the column of labels, where they are tables.

    Raises:
        DataError: a side is no set of examples, they are unlike each other, or their
            labels are no classes.
    """
    inside = _classified("members", examples_of("members", members, label))
    outside = _classified("non_members", examples_of("non_members", non_members, label))
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
    )


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


PICKLED = (".pt", ".pth", ".bin")


def named_model(name: str, weights: Path | None = None) -> nn.Module:
    """Return the model that `package.module:factory` makes, with these weights.

    Raises:
        CoveyError: there is no such factory, or the weights are not of its model.
    """
    module = factory_of(named_function("--model", name))()
    if weights is None:
        return module
    try:
        module.load_state_dict(_state(weights))
    except RuntimeError as error:
        raise ModelError(
            f"{weights} must hold the state dict of the model that {name} makes, but "
            f"{' '.join(str(error).split())}. Name the factory that it was saved from."
        ) from error
    return module


def named_function(key: str, name: str) -> Callable[..., Any]:
    """Return what `package.module:name` names.

    Raises:
        ConfigError: there is no such thing, or it cannot be called.
    """
    if ":" not in name:
        raise ConfigError(
            f"{key} must be package.module:function, found {name!r}. Name the function, "
            f"of a module in this folder or in PYTHONPATH."
        )
    return find("model", name, key)


def _state(path: Path) -> dict[str, Tensor]:
    """Read a state dict; nothing in the file is run."""
    try:
        check_regular(path)
        if path.suffix in PICKLED:
            state = torch.load(path, map_location="cpu", weights_only=True)
        else:
            state = safetensors.torch.load_file(path)
    except Exception as error:  # a malformed file can raise anything
        raise DataError(
            f"{path} must be a state dict: safetensors, or one that torch.save wrote to a file "
            f"{', '.join(PICKLED)}, with tensors alone: {error}. Save model.state_dict()."
        ) from error
    if not isinstance(state, Mapping) or not all(
        isinstance(each, Tensor) for each in state.values()
    ):
        raise DataError(
            f"{path} must hold a state dict, tensors by name, found a "
            f"{type(state).__name__}. Save model.state_dict()."
        )
    return dict(state)
