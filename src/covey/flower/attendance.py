"""Who keeps a federation waiting is asked less often, and then not at all."""

from collections.abc import Collection

__all__ = ["LEAST_SECONDS", "PATIENCE", "SLOWER", "Attendance", "time_limit"]

SLOWER = 3.0
"""How many times as long as the faster half a node may take."""
LEAST_SECONDS = 60.0
"""What every node may take, however fast the others are, within the configured limit."""

PATIENCE = 5
"""Times in a row that a node may let its time pass; then it must come anew."""


def time_limit(limit: float, half: float | None) -> float:
    """Return how long a round waits for its last answers, in seconds.

    Args:
        limit: the configured limit.
        half: after how long more than half of those who were asked had answered; None:
            they have not.
    """
    if half is None:
        return limit
    return min(limit, max(LEAST_SECONDS, SLOWER * half))


class Attendance:
    """Which nodes are left alone for a while: for 2^(k-1) rounds after k silences in a row.

    After `PATIENCE` silences a node is not asked any more, until it has been away and is
    back: that is how a node that was restarted looks.
    """

    def __init__(self) -> None:
        self._silences: dict[int, int] = {}
        self._rounds_off: dict[int, int] = {}

    def begin_round(self, there: Collection[int]) -> None:
        """Count down; who is away is forgotten."""
        self._silences = {n: k for n, k in self._silences.items() if n in there}
        self._rounds_off = {
            node: left - 1
            for node, left in self._rounds_off.items()
            if node in there and left > 1
        }

    def is_off(self, node: int) -> bool:
        """Return whether a node is not asked in this round."""
        return node in self._rounds_off or self._silences.get(node, 0) >= PATIENCE

    def answered(self, node: int) -> None:
        """Note an answer: all is well again."""
        self._silences.pop(node, None)

    def kept_waiting(self, node: int) -> bool:
        """Note a silence that took all its time; return whether it was the last one."""
        self._silences[node] = self._silences.get(node, 0) + 1
        # this round counts as well
        self._rounds_off[node] = 2 ** (self._silences[node] - 1) + 1
        return self._silences[node] == PATIENCE
