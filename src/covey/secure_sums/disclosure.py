"""What several sums tell together: the difference of two is a sum over few.

Clients that were in exactly the same sums are a *part*. Every sum is a sum of sums over
whole parts. So while every part has as many clients as the smallest cohort, all sums
together tell no more than sums over disjoint groups of as many clients each would.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Set
from typing import TypeVar

__all__ = ["movable", "smallest_part"]

T = TypeVar("T", bound=Hashable)


def smallest_part(sums: Iterable[Set[str]]) -> int:
    """Return how many clients are in the smallest part; 0 if nobody is in any sum."""
    within: dict[str, list[int]] = defaultdict(list)
    for index, clients in enumerate(sums):
        for client in clients:
            within[client].append(index)
    parts = Counter(map(tuple, within.values()))
    return min(parts.values(), default=0)


def movable(
    wishes: Mapping[T, Hashable], parts: Mapping[T, Hashable], minimum: int
) -> frozenset[T]:
    """Return who may move so that every part still has `minimum` clients, or nobody.

    Of one part, those with the same wish move together if they are enough, and if those
    that they leave behind are enough as well, or nobody; larger groups first.

    Args:
        wishes: where each client that wants to move wants to.
        parts: of everybody who is in some sum; who is not is in none.
        minimum: the smallest cohort.
    """
    behind = Counter(parts.values())
    groups: dict[tuple[Hashable, Hashable], list[T]] = defaultdict(list)
    for client, wish in wishes.items():
        groups[parts.get(client), wish].append(client)
    moving: set[T] = set()
    order = sorted(groups, key=lambda each: (-len(groups[each]), str(each)))
    for part, wish in order:
        group = groups[part, wish]
        left = minimum if part is None else behind[part] - len(group)
        if len(group) >= minimum and (left == 0 or left >= minimum):
            moving.update(group)
            behind[part] -= len(group)
    return frozenset(moving)
