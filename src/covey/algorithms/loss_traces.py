"""What a client keeps of its own records: their losses, round after round.

They are those that its training computes anyway, and stay on its side with all else that
it keeps (`client_memory`): of remote clients no server sees them.
"""

import math
from collections.abc import Mapping

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from covey.data.examples import Client
from covey.engine.recipe import Recipe
from covey.engine.recorded_loss import RecordedJob
from covey.membership.loss_spreads import highest, loss_spread
from covey.types import Params

__all__ = [
    "OWN_RECORDS",
    "after_training",
    "final_losses",
    "loss_trace",
    "share_left_out",
    "training_records",
    "with_final_losses",
    "withheld",
]

OWN_RECORDS = "records"
"""Under this name a client keeps what it knows of its records: no objective looks at it."""

TRACE, WITHHELD, FINAL = "losses", "withheld", "final"

ALREADY_OUT = 1e9
"""In nats: more than any spread of losses."""

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


def withheld(memory: Memory, count: int) -> Bool[Tensor, " records"]:
    """Return which of a client's records it leaves out."""
    found = memory.get(OWN_RECORDS, {}).get(WITHHELD)
    known = found is not None and len(found) == count
    return found if known and found is not None else torch.zeros(count).bool()


def share_left_out(client: Client, recipe: Recipe) -> float:
    """Return the share of its records that a client leaves out: its own, or everybody's."""
    own = client.preference.withhold
    return recipe.withhold if own is None else own


def training_records(
    memory: Memory, count: int, share: float
) -> Int[Tensor, " chosen"]:
    """Return the places of the records that a client trains on; all with a share of 0."""
    if not share:
        return torch.arange(count)
    return torch.nonzero(~withheld(memory, count))[:, 0]


def after_training(kept: Memory, done: RecordedJob, count: int, share: float) -> Memory:
    """Return what a client with so many records keeps, with one more row of losses."""
    job, losses = done.job, torch.full((count,), torch.nan)
    losses[training_records(job.memory, count, share)] = done.first_losses()
    after = job.recipe.withhold_after
    return {**kept, OWN_RECORDS: _own(job.memory, losses, share, after)}


def _own(
    before: Memory, losses: Float[Tensor, " records"], share: float, after: int
) -> Params:
    """Return what a client knows of its records after a round.

    Once it knows `after` rounds, it leaves out a share. Everything begins anew where its
    records are others in number.
    """
    past = loss_trace(before)
    rows = [] if past is None or past.shape[1] != len(losses) else [past]
    trace = torch.cat([*rows, losses[None]])
    if not share:
        return {TRACE: trace}
    out = withheld(before, len(losses))
    if len(trace) >= after:
        out = most_exposed(trace, share, out)
    return {TRACE: trace, WITHHELD: out}


def most_exposed(
    trace: Float[Tensor, "rounds records"],
    share: float,
    out: Bool[Tensor, " records"] | None = None,
) -> Bool[Tensor, " records"]:
    """Return the records whose losses spread the most: this share, and one at the least.

    Those that are left out already (`out`) come first, so that they stay out as long as
    the share does not fall. One record always stays, so that there is something to train
    on.
    """
    spread = loss_spread(trace.T.double().numpy())
    if out is not None:
        spread[out.numpy()] += ALREADY_OUT
    count = min(math.ceil(share * len(spread)), len(spread) - 1)
    return torch.from_numpy(highest(spread, max(count, 0)))
