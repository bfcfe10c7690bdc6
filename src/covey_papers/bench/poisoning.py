"""What colluding clients do to each aggregation, and what that one does to a minority.

Colluders are drawn among the majority, so that the minority's own examples are all there in
every row. Nothing is written but the outcome: a federation of this bench has no ledger and
no states on disk.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from statistics import fmean, stdev

from pydantic import TypeAdapter

from covey.algorithms import ServerState
from covey.atomic_io import replace_whole
from covey.build import BuiltRun, build_run
from covey.components import reference
from covey.config import Config
from covey.data import Client, Examples
from covey.engine import ScoringJob
from covey.rng import Streams
from covey_papers.bench.attacks import LABEL_FLIP, Poisoned
from covey_papers.bench.poisoning_scenarios import (
    BASE,
    FLOODED,
    MERGES,
    METHODS,
    Cell,
    Poisoning,
    cells,
)

__all__ = ["Suffered", "deviations", "means", "suffered", "suffered_by_all"]

MINORITY = "minority"
ACCURACIES = ("accuracy", "majority", "minority")


@dataclass(frozen=True, slots=True)
class Suffered:
    """How a federation ended: accuracies of honest clients, each on its group's images."""

    cell: Cell
    accuracy: float
    majority: float
    minority: float


def suffered(cell: Cell, rounds: int) -> Suffered:
    """Play one federation to its end."""
    colluders, minority = _drawn(cell.seed, cell.share)
    run = build_run(_config(cell, rounds, colluders, minority))
    if cell.attack == LABEL_FLIP:
        run = _with_colluders(run, colluders, lambda each: _flipped(each, run))
    if cell.method.startswith("founded"):
        theirs = next(c.group for c in run.population.clients if _is_minority(run, c))
        run = _with_colluders(run, colluders, lambda each: replace(each, group=theirs))
    state = run.strategy.init(run.streams)
    for t in range(rounds):
        present = run.clients(run.population.clients, t)
        state = run.strategy.play_round(
            state, present, run.streams.at("round", t)
        ).state
    return _judged(run, state, cell, colluders)


def _config(
    cell: Cell, rounds: int, colluders: Sequence[str], minority: Sequence[str]
) -> Config:
    merge, method = MERGES[cell.merge], dict(METHODS[cell.method])
    lies = {"colluders": list(colluders), "minority": list(minority)}
    options = {
        "attack": cell.attack,
        **lies,
        "merge": merge.name,
        "merge_options": dict(merge.options),
    }
    if method["name"] == FLOODED["name"]:
        method["options"] = {**method["options"], **lies}
    return Config.of(
        {
            **BASE,
            "rounds": rounds,
            "seed": cell.seed,
            "method": method,
            "merge": {"name": reference(Poisoned), "options": options},
        }
    )


@cache
def _drawn(seed: int, share: float) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Draw colluders of the majority, and return their handles and the minority's.

    A larger share has those of a smaller one too.
    """
    run = build_run(_config(Cell("mean", "none", 0.0, "fedavg", seed), 1, (), ()))
    clients = run.population.clients
    usual = [each.handle for each in clients if not _is_minority(run, each)]
    order = Streams(seed).at("colluders").generator().permutation(len(usual))
    colluders = tuple(usual[i] for i in order[: round(share * len(clients))])
    return colluders, tuple(c.handle for c in clients if _is_minority(run, c))


def _with_colluders(
    run: BuiltRun, colluders: Sequence[str], lie: Callable[[Client], Client]
) -> BuiltRun:
    """Return the run in which colluders are what they say."""
    clients = run.population.clients
    return run.with_clients(
        tuple(lie(each) if each.handle in colluders else each for each in clients)
    )


def _flipped(client: Client, run: BuiltRun) -> Client:
    """Return a client whose digits y are said to be 9 - y."""
    train, last = client.train, run.population.num_classes - 1
    return replace(client, train=Examples(train.inputs, last - train.labels))


def _group(run: BuiltRun, client: Client) -> str:
    return run.population.groups[client.group or 0].name


def _is_minority(run: BuiltRun, client: Client) -> bool:
    return _group(run, client) == MINORITY


def _judged(
    run: BuiltRun, state: ServerState, cell: Cell, colluders: Sequence[str]
) -> Suffered:
    honest = [c for c in run.population.clients if c.handle not in colluders]
    pairs = [(c.group or 0, state.assignment[c.handle]) for c in honest]
    right: dict[tuple[int, int], float] = {}
    for group, cluster in sorted(set(pairs)):
        job = ScoringJob(state.clusters[cluster], run.population.test[group])
        correct = run.engine.score([job])[0].correct
        assert correct is not None  # digits are classes  # noqa: S101
        right[group, cluster] = float(correct.double().mean())
    by_group: dict[str, list[float]] = {}
    for client, pair in zip(honest, pairs, strict=True):
        by_group.setdefault(_group(run, client), []).append(right[pair])
    minority = by_group.pop(MINORITY)
    (majority,) = by_group.values()
    return Suffered(
        cell, fmean([*majority, *minority]), fmean(majority), fmean(minority)
    )


def suffered_by_all(
    bench: Poisoning, out: Path | None, observe: Callable[[Suffered], None]
) -> tuple[Suffered, ...]:
    """Play every federation, or read it where it lies in the folder already."""
    path = out / "poisoning.json" if out else None
    known = _read(path, bench.rounds) if path else {}
    found = dict[Cell, Suffered]()
    for cell in cells(bench):
        found[cell] = known.get(cell) or suffered(cell, bench.rounds)
        if cell in known:
            continue
        observe(found[cell])
        if path:
            _write(path, bench.rounds, {**known, **found}.values())
    return tuple(found.values())


def means(rows: Iterable[Suffered]) -> tuple[Suffered, ...]:
    """Return the mean over seeds of each federation, under seed -1."""
    return _over_seeds(rows, fmean)


def deviations(rows: Iterable[Suffered]) -> tuple[Suffered, ...]:
    """Return the standard deviations over seeds, as `means`; of one seed 0."""
    return _over_seeds(rows, lambda each: stdev(each) if len(each) > 1 else 0.0)


def _over_seeds(
    rows: Iterable[Suffered], of: Callable[[Sequence[float]], float]
) -> tuple[Suffered, ...]:
    alike: dict[Cell, list[Suffered]] = {}
    for row in rows:
        alike.setdefault(replace(row.cell, seed=-1), []).append(row)
    return tuple(
        Suffered(cell, *(of([getattr(r, x) for r in own]) for x in ACCURACIES))
        for cell, own in alike.items()
    )


def _read(path: Path, rounds: int) -> Mapping[Cell, Suffered]:
    if not path.is_file():
        return {}
    kept = json.loads(path.read_text(encoding="utf-8"))
    if kept["rounds"] != rounds or kept["settings"] != _told():
        return {}
    rows = TypeAdapter(list[Suffered]).validate_python(kept["rows"])
    return {row.cell: row for row in rows}


def _write(path: Path, rounds: int, rows: Iterable[Suffered]) -> None:
    """Write down what was measured, all of it or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = [asdict(row) for row in rows]
    kept = {"rounds": rounds, "settings": _told(), "rows": plain}
    replace_whole(path, json.dumps(kept, indent=1).encode())


def _told() -> object:
    """Return what all federations share, as JSON gives it back."""
    merges = {name: asdict(merge) for name, merge in MERGES.items()}
    methods = {name: dict(method) for name, method in METHODS.items()}
    return json.loads(json.dumps({**BASE, "merges": merges, "methods": methods}))
