"""What a client keeps of its own records: their losses, round after round.

They are those that its training computes anyway, and stay on its side with all else that
it keeps (`client_memory`): of remote clients no server sees them.
"""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from covey.engine.recorded_loss import RecordedJob
from covey.types import Params

__all__ = [
    "OWN_RECORDS",
    "after_training",
    "final_losses",
    "loss_trace",
    "with_final_losses",
]

OWN_RECORDS = "records"
"""Under this name a client keeps what it knows of its records: no objective looks at it."""

TRACE, FINAL = "losses", "final"

Memory = Mapping[str, Params]


def loss_trace(memory: Memory) -> Float[Tensor, "rounds records"] | None:
    """Return the losses of a client's records in its rounds so far; None: it kept none."""
    return memory.get(OWN_RECORDS, {}).get(TRACE)


def final_losses(memory: Memory) -> Float[Tensor, " records"] | None:
    """Return the losses under the final model; None: the client did not receive one."""
    return memory.get(OWN_RECORDS, {}).get(FINAL)


def with_final_losses(memory: Memory, losses: Float[Tensor, " records"]) -> Memory:
    """Return what a client keeps, with its losses under the final model.

    They are gone with the next round that it trains in.
    """
    return {**memory, OWN_RECORDS: {**memory[OWN_RECORDS], FINAL: losses}}


def after_training(kept: Memory, done: RecordedJob) -> Memory:
    """Return what a client keeps, with one more row of losses.

    They begin anew where its records are others in number.
    """
    losses, past = done.first_losses(), loss_trace(done.job.memory)
    rows = [] if past is None or past.shape[1] != len(losses) else [past]
    return {**kept, OWN_RECORDS: {TRACE: torch.cat([*rows, losses[None]])}}
