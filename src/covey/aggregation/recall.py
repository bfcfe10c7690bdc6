"""Updates that can be had once more: what a merge need not hold while it looks at all."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from covey.aggregation.merging import ClientUpdate
from covey.types import Handle

__all__ = ["RecallableUpdates"]


@dataclass(frozen=True, slots=True, eq=False)
class RecallableUpdates:
    """A round's updates, one by one, and a way to those of some clients afterwards.

    A simulation trains these clients once more: every draw of a client has a name, so that
    the same comes of it. Where clients are remote nothing of the kind is passed: who is
    asked again would know that it speaks for others.

    Attributes:
        arriving: the updates, in client-name order; they can be taken once.
        again: yields the updates of these clients, in this order. All of `arriving` must
            have been taken before.
    """

    arriving: Iterator[ClientUpdate]
    again: Callable[[Sequence[Handle]], Iterator[ClientUpdate]]

    def __iter__(self) -> Iterator[ClientUpdate]:
        return self.arriving
