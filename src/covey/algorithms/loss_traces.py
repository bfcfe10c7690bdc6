"""What a client keeps of its own records: their losses, round after round.

They are those that its training computes anyway, and stay on its side with all else that
it keeps (`client_memory`): of remote clients no server sees them.
"""

import math
from collections.abc import Mapping

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from covey.engine.recorded_loss import RecordedJob
from covey.membership.loss_spreads import highest, loss_spread
from covey.types import Params

__all__ = [
    "OWN_RECORDS",
    "after_training",
    "loss_trace",
    "training_records",
    "withheld",
]

OWN_RECORDS = "records"
"""Under this name a client keeps what it knows of its records: no objective looks at it."""

TRACE, WITHHELD = "losses", "withheld"

Memory = Mapping[str, Params]


def loss_trace(memory: Memory) -> Float[Tensor, "rounds records"] | None:
    """Return the losses of a client's records in its rounds so far; None: it kept none."""
    return memory.get(OWN_RECORDS, {}).get(TRACE)


def withheld(memory: Memory, count: int) -> Bool[Tensor, " records"]:
    """Return which of a client's records it leaves out."""
    found = memory.get(OWN_RECORDS, {}).get(WITHHELD)
    known = found is not None and len(found) == count
    return found if known and found is not None else torch.zeros(count).bool()


def training_records(memory: Memory, count: int) -> Int[Tensor, " chosen"]:
    """Return the places of the records that a client trains on."""
    return torch.nonzero(~withheld(memory, count))[:, 0]


def after_training(kept: Memory, done: RecordedJob, count: int) -> Memory:
    """Return what a client with so many records keeps, with one more row of losses."""
    job, losses = done.job, torch.full((count,), torch.nan)
    losses[training_records(job.memory, count)] = done.first_losses()
    share, after = job.recipe.withhold, job.recipe.withhold_after
    return {**kept, OWN_RECORDS: _own(job.memory, losses, share, after)}


def _own(
    before: Memory, losses: Float[Tensor, " records"], share: float, after: int
) -> Params:
    """Return what a client knows of its records after a round.

    Once it knows `after` rounds, it leaves out a share for good. Everything begins anew
    where its records are others in number.
    """
    past = loss_trace(before)
    rows = [] if past is None or past.shape[1] != len(losses) else [past]
    trace = torch.cat([*rows, losses[None]])
    if not share:
        return {TRACE: trace}
    out = withheld(before, len(losses))
    if not out.any() and len(trace) >= after:
        out = most_exposed(trace, share)
    return {TRACE: trace, WITHHELD: out}


def most_exposed(
    trace: Float[Tensor, "rounds records"], share: float
) -> Bool[Tensor, " records"]:
    """Return the records whose losses spread the most: this share, and one at the least.

    One record always stays, so that there is something to train on.
    """
    spread = loss_spread(trace.T.double().numpy())
    count = min(math.ceil(share * len(spread)), len(spread) - 1)
    return torch.from_numpy(highest(spread, max(count, 0)))
