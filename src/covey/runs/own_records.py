"""A client's own look at its records: which of them a model gives away the most.

They follow from the losses that the client kept (`train.keep_losses`), on the machine
where these lie: that of its node, or, where clients are simulated, that of the operator
who plays them all. Nothing is written but a page for the client, where it is requested.
"""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from covey.algorithms.state import (
    OWN_RECORDS,
    ClientMemory,
    final_losses,
    loss_trace,
    with_final_losses,
)
from covey.base.as_json import HIDDEN
from covey.base.errors import ConfigError, CoveyError, RunError
from covey.base.files import check_regular
from covey.base.names import ClientName, Params
from covey.base.own_code import no_foreign_code
from covey.base.rng import Streams
from covey.data.arrays import read_client
from covey.data.population import example_order
from covey.engine.protocol import ScoringJob
from covey.ledger.store import Ledger
from covey.membership.references import loss_drop, top_share
from covey.report.page import write_exposed_records
from covey.runs.parts import playable
from covey.runtime.folder import RunFolder
from covey.runtime.reading import unknown_client
from covey.runtime.states import kept_state
from covey.settings.clients import Overrides
from covey.settings.load import load_config
from covey.settings.node import NodeFile

MIN_ROUNDS = 4
"""Quartiles of fewer losses are one or two of them."""

ON_OPERATOR = "this run's folder: its clients are simulated, and the operator sees it"
ON_NODE = "the client's own node folder"

DROP = "the upper quartile of its losses over the rounds, less its "
TO_MODEL = f"{DROP}loss under the newest model"
WITH_PARTS = (
    "; in Python, covey.load(RUN, model=..., clients=...).exposed_records(NAME) takes "
    "those that you pass"
)
TO_LAST = (
    f"{DROP}last loss in training; its loss under the newest model would rank the "
    f"records better, but the model or the client's data cannot be loaded here"
)


@dataclass(frozen=True, slots=True)
class ExposedRecord:
    """One record among those that a client trains on.

    Attributes:
        rank: among all records of the client, from 1, the most exposed.
        place: its index among them, from 0, the holdout apart.
        row: its row in the client's data file, from 0; None: no such file is known.
        score: how exposed it is, in nats.
        first, last: its loss in the first round and in the last that it was trained on.
    """

    rank: int
    place: int
    row: int | None
    score: float
    first: float
    last: float


@dataclass(frozen=True, slots=True)
class ExposedRecords:
    """A client's most exposed records, the most exposed first.

    Attributes:
        held: how many records it trains on.
        rounds: of which the losses are known.
        score_meaning: what the score is, in words.
        median_score: of all its records.
        kept_in: where the losses lie, and who can read them there.
        rows_known: whether it is known which rows of a data file the records are.
        run: the folder of the run; None: they lie at the client's node.
    """

    client: ClientName
    held: int
    rounds: int
    score_meaning: str
    median_score: float
    kept_in: str
    records: tuple[ExposedRecord, ...]
    rows_known: bool = False
    run: Path | None = field(default=None, metadata=HIDDEN)

    def write_html(self, out: str | Path) -> Path:
        """Write the client's page, for its owner alone; nothing else is shown of it.

        Raises:
            RunError: the file would lie in the folder of the run, which is the server's.
        """
        page = Path(out)
        if self.run is not None and page.resolve().is_relative_to(self.run.resolve()):
            raise RunError(
                f"A client's page of its records lies on its own machine, found {page}, "
                f"in the folder of the run {self.run}. Name a file elsewhere."
            )
        return write_exposed_records(asdict(self), page)


def exposed_records(
    path: Path, client: ClientName = "", share: float = 0.02, overrides: Overrides | None = None
) -> ExposedRecords:
    """Return a client's most exposed records: this share of them, one at the least.

    Records are ranked by `loss_drop`: to their loss under the newest model where the client
    has that and its data are at hand, else to the last that training saw.

    Args:
        path: a run's folder, or a node's, which has a `node.toml`.
        client: of a run: whose.
        share: above 0, up to 1.
        overrides: of a run: the model and the clients, if a program has them.

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
        file = NodeFile.read(path / "node.toml")
        return _listed(file.name, _of_node(path), share, ON_NODE, _rows_of(path, file))
    memory = _of_run(path, client, overrides or Overrides())
    listed = _listed(client, memory, share, ON_OPERATOR)
    parts = WITH_PARTS if listed.score_meaning == TO_LAST else ""
    return replace(listed, run=path, score_meaning=listed.score_meaning + parts)


def _of_run(path: Path, client: ClientName, overrides: Overrides) -> Mapping[str, Params]:
    folder = RunFolder.existing(path)
    with Ledger.read(folder.ledger) as ledger:
        handles = {name: handle for handle, name in ledger.names().items()}
        state = kept_state(folder, ledger)
    handle = handles.get(client)
    if handle is None:
        raise unknown_client(folder, client)
    kept = state.kept(ClientMemory)
    if handle in kept.rounds:
        raise RunError(
            f"{client} is on a machine of its own, and so are the losses of its records. "
            f"Look there: `covey explain NODE --records`, with the folder of its node.toml."
        )
    memory, cluster = kept.kept.get(handle, {}), state.assignment.get(handle)
    if OWN_RECORDS not in memory or cluster is None:
        return memory
    losses = _losses(folder, overrides, client, state.clusters[cluster])
    return memory if losses is None else with_final_losses(memory, losses)


def _losses(
    folder: RunFolder, overrides: Overrides, name: ClientName, params: Params
) -> Tensor | None:
    """Return a model's losses on a client's records; None: these are not at hand.

    A program that passes the model or the clients has code of the run's, and runs it.
    """
    passed = overrides.model is not None or overrides.clients is not None
    try:
        with nullcontext() if passed else no_foreign_code():
            run = playable(folder, overrides, "exposed_records(...)")
            train = next(c.train for c in run.population.clients if c.name == name)
            (scored,) = run.engine.score([ScoringJob(params, train)])
    except (CoveyError, StopIteration):
        return None
    return scored.losses


def _of_node(path: Path) -> Mapping[str, Params]:
    """Return what the node kept in the newest round of the run that it wrote last."""
    files = (path / "memory").glob("*/*.safetensors")
    newest = max(files, key=lambda f: (f.parent.stat().st_mtime, int(f.stem)), default=None)
    if newest is None:
        return {}
    try:
        check_regular(newest)
        tensors = safetensors.torch.load_file(newest)
    except (OSError, SafetensorError) as error:
        raise RunError(f"{newest} cannot be read: {error}. Restore it.") from error
    own = f"{OWN_RECORDS}/"
    return {OWN_RECORDS: {n.removeprefix(own): t for n, t in tensors.items() if n.startswith(own)}}


def _rows_of(path: Path, file: NodeFile) -> tuple[int, ...]:
    """Return the rows of the node's data file that it trains on; (): not known.

    A program that passes examples by hand has no such file, and a file may be gone by now.
    """
    if not file.data:
        return ()
    try:
        count = len(read_client(path / file.data))
        usual = load_config(path / file.config, []).population.holdout
    except CoveyError:
        return ()
    share = usual if file.holdout is None else file.holdout
    order = example_order(file.name, count, Streams(file.seed))
    return tuple(order[: count - round(share * count)].tolist())


def _listed(
    client: ClientName,
    memory: Mapping[str, Params],
    share: float,
    kept_in: str,
    rows: Sequence[int] = (),
) -> ExposedRecords:
    trace = loss_trace(memory)
    if trace is None or len(trace) < MIN_ROUNDS:
        actual = "none" if trace is None else f"{len(trace)} rounds"
        raise RunError(
            f"Losses of {client}'s records over at least {MIN_ROUNDS} rounds are needed, "
            f"found {actual}. Play a run with train.keep_losses = true."
        )
    losses, final = trace.T.double().numpy(), final_losses(memory)
    to_model = final is not None and len(final) == len(losses)
    seen = [record[np.isfinite(record)] for record in losses]
    first, last = (np.array([each[i] if len(each) else np.nan for each in seen]) for i in (0, -1))
    scores = loss_drop(losses, final.double().numpy() if final is not None and to_model else last)
    order = np.argsort(-np.nan_to_num(scores, nan=-np.inf), kind="stable")
    listed = top_share(scores, share)
    rows_known = len(rows) == trace.shape[1]  # or the file holds others by now
    return ExposedRecords(
        client=client,
        held=trace.shape[1],
        rounds=len(trace),
        score_meaning=TO_MODEL if to_model else TO_LAST,
        median_score=float(np.nanmedian(scores)),
        kept_in=kept_in,
        records=tuple(
            ExposedRecord(
                place=int(place),
                row=rows[place] if rows_known else None,
                rank=rank,
                score=float(scores[place]),
                first=float(first[place]),
                last=float(last[place]),
            )
            for rank, place in enumerate(order, start=1)
            if listed[place]
        ),
        rows_known=rows_known,
    )
