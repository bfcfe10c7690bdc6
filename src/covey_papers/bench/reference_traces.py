"""Reference federations on disk: each with its members' losses, round after round.

Half of the records train each reference, so that every one of them serves as the model
under attack, with traces of its own, while the others are what LiRA compares it with.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy import ndarray
from torch import Tensor

from covey.algorithms import ClientMemory, loss_trace
from covey.atomic_io import replace_whole
from covey.build import BuiltRun
from covey.data import Client, Examples, Preference
from covey.engine import ScoringJob
from covey.membership import Candidates, halves, logit, strata_of
from covey.rng import Streams
from covey.types import Params

__all__ = ["ReferenceTraces", "candidates_of", "play_references", "read_references"]


@dataclass(frozen=True, slots=True, eq=False)
class ReferenceTraces:
    """What reference federations say of the candidates.

    Attributes:
        confidences: logit-scaled, under each final model.
        trained: the losses of each model's members when its training first drew them in a
            round; NaN for records that it did not train on.
        received: the same under the model after each round, which has to be asked.
        seconds: what one reference took to train, and to be asked for its losses.
    """

    confidences: Float[ndarray, "records models"]
    inside: Bool[ndarray, "records models"]
    trained: Float[ndarray, "records models rounds"]
    received: Float[ndarray, "records models rounds"]
    seconds: tuple[float, ...]


def candidates_of(run: BuiltRun) -> Candidates:
    """Return the members of one model for everybody, with matched non-members.

    Raises:
        ValueError: there are too few of them.
    """
    streams = run.streams.at("record risk")
    clients = run.population.clients
    found = Candidates.of(strata_of(clients, run.reference, streams))
    if found is None:
        raise ValueError("too few members or non-members for any group")
    return found


def play_references(
    run: BuiltRun,
    count: int,
    folder: Path,
    observe: Callable[[int, float], None] = lambda _, __: None,
) -> None:
    """Play references up to this number; those that lie in the folder are not played."""
    candidates = candidates_of(run)
    folder.mkdir(parents=True, exist_ok=True)
    inside = _inside(candidates, count, run)
    for index in range(count):
        path = _path(folder, index)
        if path.is_file():
            continue
        kept = _played(run, candidates, inside[:, index], index)
        file = BytesIO()
        np.savez_compressed(file, **kept)  # pyright: ignore[reportArgumentType]
        replace_whole(path, file.getvalue())
        observe(index, float(kept["seconds"].sum()))


def read_references(run: BuiltRun, folder: Path) -> ReferenceTraces:
    """Return the references that lie in a folder; some may be missing between them.

    Raises:
        ValueError: there are fewer than two.
    """
    kept: dict[int, dict[str, ndarray]] = {}
    for path in sorted(folder.glob("reference-*.npz")):
        with np.load(path) as file:
            kept[int(path.stem.rpartition("-")[2])] = {k: file[k] for k in file.files}
    if len(kept) < 2:
        raise ValueError(f"at least 2 references are needed, found {len(kept)}")
    columns = sorted(kept)
    inside = _inside(candidates_of(run), max(kept) + 1, run)[:, columns]
    looks: dict[str, ndarray] = {}
    for name in ("trained", "received"):
        looks[name] = np.full((*inside.shape, run.config.rounds), np.nan)
        for column, index in enumerate(columns):
            looks[name][kept[index]["places"], column] = kept[index][name]
    spent = np.stack([kept[index]["seconds"] for index in columns]).mean(axis=0)
    confidences = np.stack([kept[i]["confidences"] for i in columns], axis=1)
    return ReferenceTraces(
        confidences.astype(np.float64), inside, **looks, seconds=tuple(spent.tolist())
    )


def _path(folder: Path, index: int) -> Path:
    return folder / f"reference-{index:03d}.npz"


def _inside(
    candidates: Candidates, count: int, run: BuiltRun
) -> Bool[ndarray, "records models"]:
    """Return who is inside; a larger number of references begins with the same ones."""
    even = count + count % 2
    return halves(candidates, even, run.streams.at("record risk"))[:, :count]


def _played(
    run: BuiltRun, candidates: Candidates, inside: Bool[ndarray, " records"], index: int
) -> dict[str, ndarray]:
    """Play one federation by the run's own settings, and ask its models about records."""
    at = run.streams.at("record risk", "reference", index)
    dealt = _dealt(candidates, inside, at)
    members = candidates.examples.take(torch.cat(dealt))
    there = run.with_clients(
        tuple(_pseudo_client(i, candidates, own) for i, own in enumerate(dealt))
    )
    state, spent, seen = there.strategy.init(at), np.zeros(2), list[ndarray]()
    for t in range(run.config.rounds):
        began = time.process_time()
        clients = there.clients(there.population.clients, t)
        state = there.strategy.play_round(state, clients, at.at("round", t)).state
        trained = time.process_time()
        seen.append(_losses(run, state.clusters[0], members))
        spent += trained - began, time.process_time() - trained
    kept = state.kept(ClientMemory).kept
    traces = [loss_trace(kept[each.handle]) for each in there.population.clients]
    (scored,) = run.engine.score([ScoringJob(state.clusters[0], candidates.examples)])
    if scored.log_probs is None or any(each is None for each in traces):
        raise ValueError("LiRA needs classes, and traces need train.keep_losses")
    found = logit(scored.log_probs.double().numpy(), candidates.labels)
    return {
        "places": torch.cat(dealt).numpy(),
        "received": np.stack(seen, axis=1).astype(np.float32),
        "trained": torch.cat([t for t in traces if t is not None], dim=1).T.numpy(),
        "confidences": found.astype(np.float32),
        "seconds": spent,
    }


def _dealt(
    candidates: Candidates, inside: Bool[ndarray, " records"], streams: Streams
) -> list[Tensor]:
    """Return the places of each pseudo-client's records: sizes are the clients' own."""
    if any(len(stratum.background) for stratum in candidates.strata):
        raise ValueError("every member needs a non-member: more audit_examples")
    blocks: list[Tensor] = []
    for place, stratum in enumerate(candidates.strata):
        own = np.flatnonzero(inside & (candidates.stratum == place))
        order = streams.at("dealt", place).generator().permutation(own)
        blocks += torch.from_numpy(order).split(list(stratum.sizes))
    return blocks


def _pseudo_client(index: int, candidates: Candidates, places: Tensor) -> Client:
    name, train = f"reference-{index:05d}", candidates.examples.take(places)
    return Client(name, name, None, train, train.first(0), Preference(0.0, 1.0))


def _losses(run: BuiltRun, params: Params, members: Examples) -> Float[ndarray, " n"]:
    (scored,) = run.engine.score([ScoringJob(params, members)])
    return scored.losses.double().numpy()
