"""What a message holds where heads are solved: sums and means, and heads to compare."""

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from covey.algorithms import ClientResponse
from covey.flower.invalid import InvalidMessageError
from covey.heads import Sums, diagonal_of, fault_of, fault_of_mean, fault_of_total
from covey.types import Handle, Params

__all__ = [
    "expected_of",
    "heads_in",
    "lengths_of",
    "mean_in",
    "sums_in",
    "with_roots",
]

ROOT = "root"
"""What is sent beside a head that the client is in."""


def expected_of(task: str, width: int, classes: int) -> Params:
    """Return tensors without numbers, like those that an answer must hold."""
    if task == "mean":
        return {"mean": _like((width,), torch.float64)}
    half = (width * (width + 1) // 2,)
    return {
        "gram": _like(half, torch.int64),
        "targets": _like((width, classes), torch.int64),
    }


def sums_in(sent: Params, records: int | None, digest: str) -> Sums:
    """Return a client's sums over records of weight 1.

    Args:
        sent: of the shapes that were expected.
        records: how many examples it announced; None: it tells nobody.
        digest: of the sums that it sent before; "": it sent none.

    Raises:
        InvalidMessageError: they cannot be, or are others than it sent before.
    """
    sums = Sums(sent["gram"], sent["targets"])
    if digest and sums.digest() != digest:
        raise InvalidMessageError(
            "its sums must be those that it sent before, as they are taken off with them"
        )
    if fault := fault_of_total(sums) if records is None else fault_of(sums, records):
        raise InvalidMessageError(fault)
    return sums


def mean_in(sent: Params) -> Tensor:
    """Return the mean of a client's features.

    Raises:
        InvalidMessageError: it cannot be one.
    """
    if fault := fault_of_mean(sent["mean"]):
        raise InvalidMessageError(fault)
    return sent["mean"]


def lengths_of(answers: Iterable[ClientResponse]) -> dict[Handle, Params]:
    """Return how long the features of each client's records are that sent their sums."""
    return {
        each.handle: {"length": _length(each.sums)}
        for each in answers
        if each.sums is not None
    }


def _length(sums: Sums) -> Tensor:
    """Return the root of the mean square, the bias among it."""
    diagonal = sums.gram[diagonal_of(len(sums.targets))].double()
    return (diagonal.sum() / diagonal[-1]).sqrt()


def with_roots(
    models: Sequence[Params], roots: Mapping[int, Tensor]
) -> tuple[Params, ...]:
    """Return heads as they are sent to clients that are in them."""
    return tuple(
        {**model, ROOT: roots[j]} if j in roots else model
        for j, model in enumerate(models)
    )


def heads_in(sent: Sequence[Params]) -> tuple[tuple[Params, ...], Mapping[int, Tensor]]:
    """Undo `with_roots`, of which a client gets some and of others the models."""
    models = (
        {name: value for name, value in model.items() if name != ROOT} for model in sent
    )
    return tuple(models), {j: m[ROOT] for j, m in enumerate(sent) if ROOT in m}


def _like(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")
