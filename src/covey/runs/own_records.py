"""A client's own look at its records: which of them a model gives away the most.

They are told from the losses that the client kept (`train.keep_losses`), on the machine
where these lie: that of its node, or, where clients are simulated, that of whoever plays
them all. Nothing is written.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from covey.algorithms import ClientMemory
from covey.algorithms.loss_traces import OWN_RECORDS, loss_trace, withheld
from covey.errors import ConfigError, RunError
from covey.ledger import Ledger
from covey.membership.loss_spreads import loss_spread, top_share
from covey.runtime import RunFolder
from covey.runtime.state_checks import checked_state
from covey.types import ClientName, Params

__all__ = ["ExposedRecord", "ExposedRecords", "exposed_records"]

MIN_ROUNDS = 4
"""Quartiles of fewer losses are one or two of them."""

ON_OPERATOR = (
    "this run's folder: its clients are simulated, and whoever plays them sees it"
)
ON_NODE = "the client's own node folder"


@dataclass(frozen=True, slots=True)
class ExposedRecord:
    """One record among those that a client trains on.

    Attributes:
        place: its index among them, from 0, the holdout apart.
        loss_spread: its losses' inter-quartile range over the rounds, in nats.
        first, last: its loss in the first round and in the last that it was trained on.
        withheld: whether the client leaves it out by now.
    """

    place: int
    loss_spread: float
    first: float
    last: float
    withheld: bool


@dataclass(frozen=True, slots=True)
class ExposedRecords:
    """A client's most exposed records, the most exposed first.

    Attributes:
        held: how many records it trains on.
        rounds: of which the losses are known.
        median_spread: of all its records.
        kept_in: where the losses lie, and who can read them there.
    """

    client: ClientName
    held: int
    rounds: int
    median_spread: float
    kept_in: str
    records: tuple[ExposedRecord, ...]


def exposed_records(
    path: Path, client: ClientName = "", share: float = 0.02
) -> ExposedRecords:
    """Return a client's most exposed records: this share of them, one at the least.

    Those that it leaves out by now are there too: their losses ended early.

    Args:
        path: a run's folder, or a node's, which has a `node.toml`.
        client: of a run: whose.
        share: above 0, up to 1.

    Raises:
        ConfigError: there is no such share.
        RunError: no losses are kept here, or too few rounds of them.
    """
    if not 0 < share <= 1:
        raise ConfigError(
            f"A share of records is above 0 and at most 1, found {share:g}. For the most "
            f"exposed 2% give 0.02."
        )
    if (path / "node.toml").is_file():
        return _listed(client or path.name, _of_node(path), share, ON_NODE)
    return _listed(client, _of_run(path, client), share, ON_OPERATOR)


def _of_run(path: Path, client: ClientName) -> Mapping[str, Params]:
    folder = RunFolder.existing(path)
    with Ledger.read(folder.ledger) as ledger:
        handles = {name: handle for handle, name in ledger.names().items()}
        state = checked_state(folder, ledger)
    handle = handles.get(client)
    if handle is None:
        raise RunError(
            f"A client of {path} that has not left is expected, found {client!r}. They are "
            f"named like {min(handles, default='client-00000')!r}."
        )
    kept = ClientMemory() if state is None else state.kept(ClientMemory)
    if handle in kept.rounds:
        raise RunError(
            f"{client} is on a machine of its own, and so are the losses of its records. "
            f"Ask there: `covey records NODE`, with the folder of its node.toml."
        )
    return kept.kept.get(handle, {})


def _of_node(path: Path) -> Mapping[str, Params]:
    """Return what the node kept in the newest round of the run that it wrote last."""
    files = sorted((path / "memory").glob("*/*.safetensors"), key=_age)
    if not files:
        return {}
    try:
        tensors = safetensors.torch.load_file(files[-1])
    except (OSError, SafetensorError) as error:
        raise RunError(f"{files[-1]} cannot be read: {error}. Restore it.") from error
    return {OWN_RECORDS: dict(_own(tensors))}


def _age(file: Path) -> tuple[float, int]:
    return file.parent.stat().st_mtime, int(file.stem)


def _own(tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    for name, value in tensors.items():
        key, _, parameter = name.partition("/")
        if key == OWN_RECORDS:
            yield parameter, value


def _listed(
    client: ClientName, memory: Mapping[str, Params], share: float, kept_in: str
) -> ExposedRecords:
    trace = loss_trace(memory)
    if trace is None or len(trace) < MIN_ROUNDS:
        found = "none" if trace is None else f"{len(trace)} rounds"
        raise RunError(
            f"Losses of {client}'s records over at least {MIN_ROUNDS} rounds are needed, "
            f"found {found}. Play a run with train.keep_losses = true."
        )
    spread = loss_spread(trace.T.double().numpy())
    out = withheld(memory, trace.shape[1])
    chosen = np.flatnonzero(top_share(spread, share) | out.numpy())
    order = chosen[np.argsort(-spread[chosen], kind="stable")]
    return ExposedRecords(
        client=client,
        held=trace.shape[1],
        rounds=len(trace),
        median_spread=float(np.nanmedian(spread)),
        kept_in=kept_in,
        records=tuple(
            _record(int(i), trace[:, i], float(spread[i]), out) for i in order
        ),
    )


def _record(place: int, losses: Tensor, spread: float, out: Tensor) -> ExposedRecord:
    seen = losses[torch.isfinite(losses)]
    first, last = (float(seen[i]) if len(seen) else float("nan") for i in (0, -1))
    return ExposedRecord(place, spread, first, last, withheld=bool(out[place]))
