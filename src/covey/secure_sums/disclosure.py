"""What several sums tell together: the difference of two is a sum over few.

So no two sums overlap: they are over the same clients, or over none in common. Each client
can see to that by itself, by the sums that it was in, and then all sums together tell no
more than sums over disjoint cohorts, whatever a server asks of others. Any rule that lets
a cohort be divided does not have that: of three sums or more, of which no client was in
all, a server could take one client's own.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Set
from typing import TypeVar

__all__ = ["movable", "overlapping"]

T = TypeVar("T", bound=Hashable)


def overlapping(clients: Set[str], earlier: Iterable[Set[str]]) -> bool:
    """Say whether some earlier sum is over some of these clients, but not the same ones."""
    return any(each & clients and each != clients for each in earlier)


def movable(
    wishes: Mapping[T, Hashable], parts: Mapping[T, Hashable], minimum: int
) -> frozenset[T]:
    """Return who may move: parts as a whole, and of who is in none, enough together.

    Args:
        wishes: where each client that wants to move wants to.
        parts: of everybody who is in some sum: who was summed together; who is not is in
            none.
        minimum: the smallest cohort.
    """
    whole = Counter(parts.values())
    groups: dict[tuple[Hashable, Hashable], set[T]] = defaultdict(set)
    for client, wish in wishes.items():
        groups[parts.get(client), wish].add(client)
    return frozenset[T]().union(
        *(
            group
            for (part, _), group in groups.items()
            if len(group) >= max(minimum, whole[part])
        )
    )
