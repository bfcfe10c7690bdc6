"""Who takes which step with whom, where clients of unlike sizes train together.

Every client takes its own steps, from the first on and without a pause, so that an
optimizer counts alike for all. Within a step, batches of one size are one operation.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from jaxtyping import Int
from torch import Tensor

from covey.engine.device import joined_on, sent

__all__ = ["Together", "lockstep"]

Drawn = Sequence[Sequence[Int[Tensor, " _"]]]


@dataclass(frozen=True, slots=True, eq=False)
class Together:
    """Clients whose batches of one step are of one size.

    Attributes:
        clients: their positions.
        rows: the same, to index with: a slice where they are the first ones.
        examples: which examples each takes, out of all clients' in one row.
    """

    clients: list[int]
    rows: slice | Int[Tensor, " clients"]
    examples: Int[Tensor, "clients batch"]


def lockstep(
    drawn: Drawn, sizes: Sequence[int], device: torch.device
) -> Iterator[list[Together]]:
    """Yield who takes each step; all together, it is the first so many clients.

    Args:
        drawn: each client's batches, the client with most steps first.
        sizes: how many examples each client has.
        device: where positions of examples go, all at once.
    """
    steps = [_by_batch_size(drawn, step) for step in range(max(map(len, drawn)))]
    offsets = [0, *accumulate(sizes)]
    parts = [
        drawn[client][step] + offsets[client]
        for step, groups in enumerate(steps)
        for group in groups
        for client in group
    ]
    if not parts:
        return
    row, begin = joined_on(device, parts), 0
    for step, groups in enumerate(steps):
        found: list[Together] = []
        for group in groups:
            size = len(drawn[group[0]][step])
            end = begin + len(group) * size
            examples = row[begin:end].view(len(group), size)
            found.append(Together(group, _rows(group, device), examples))
            begin = end
        yield found


def _by_batch_size(drawn: Drawn, step: int) -> list[list[int]]:
    """Return the clients that take a step, apart by the size of their batch."""
    groups: dict[int, list[int]] = {}
    for client, own in enumerate(drawn):
        if step < len(own):
            groups.setdefault(len(own[step]), []).append(client)
    return list(groups.values())


def _rows(clients: list[int], device: torch.device) -> slice | Tensor:
    if clients == list(range(len(clients))):
        return slice(len(clients))
    return sent(torch.tensor(clients), device)
