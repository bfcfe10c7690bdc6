"""Updates that are no updates: what a training that diverged sends is refused."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

import torch

from covey.aggregation.merging import ClientUpdate
from covey.events import AnswerRefused
from covey.params import not_finite
from covey.types import Handle

__all__ = ["NOT_FINITE", "RefusedUpdate", "finite_updates", "refusal_events"]


NOT_FINITE = "must hold finite numbers only"
"""How the reason of such a refusal ends, a remote node's as well."""


class RefusedUpdate(NamedTuple):
    """An update that is not finite, or is not together with the others of its cluster.

    Attributes:
        cluster: whose model it would have moved.
        entry: the first of the update's entries that holds NaN or infinity, or the first
            of the model that all updates make.
        together: whether all are finite by themselves, and what they add up to is not.
    """

    handle: Handle
    cluster: int
    entry: str
    together: bool = False


def finite_updates(
    updates: Iterable[ClientUpdate],
    refused: list[RefusedUpdate] | None = None,
    *,
    as_zero: bool = False,
) -> Iterator[ClientUpdate]:
    """Yield the updates that are finite, one by one, as they are.

    Args:
        updates: one by one too: a mean never holds more than one of them.
        refused: grows by what is refused, as far as updates have been taken.
        as_zero: whether a refused update is yielded as 0, instead of left out. Where the
            noise on updates is accounted for, how many there are must not follow from
            anybody's data.
    """
    for each in updates:
        entry = not_finite(each.update)
        if not entry:
            yield each
            del each  # before the next one comes
            continue
        if refused is not None:
            refused.append(RefusedUpdate(each.handle, each.cluster, entry))
        if as_zero:
            zero = {name: torch.zeros_like(v) for name, v in each.update.items()}
            yield replace(each, update=zero)


def refusal_events(refused: Iterable[RefusedUpdate]) -> tuple[AnswerRefused, ...]:
    """Return the facts, one per client, in the words that a remote node's are told in."""
    first: dict[Handle, RefusedUpdate] = {}
    for each in refused:
        first.setdefault(each.handle, each)
    return tuple(
        AnswerRefused(
            handle,
            f"its update of {each.entry} {'and the others ' * each.together}{NOT_FINITE}",
        )
        for handle, each in first.items()
    )
