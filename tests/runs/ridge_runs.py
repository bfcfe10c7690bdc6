"""A small run of ridge heads, what stands in its ledger, and what its heads should be."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from covey import Config, Examples, load
from covey.base.events import ClientsAssigned
from covey.base.params import model_hash
from covey.ledger.participation import latest_models
from covey.ridge.head import ClusterSums
from covey.runs.folder import RunFolder
from covey.settings.run import build_run
from recorded import events_of, facts

POOLING, LAMBDA = 0.3, 0.5
RIDGE: dict[str, Any] = {
    "rounds": 3,
    "population": {"clients": 8, "examples_per_client": 12, "audit_examples": 0},
    "model": {"name": "linear-head", "features": {"filters": 4, "size": 3, "pool": 2}},
    "method": {
        "name": "ridge",
        "selection": "loss",
        "initialisation": "random",
        "pooling": POOLING,
        "regularisation": LAMBDA,
    },
    "risk": {"name": "none"},
}


def model_of(folder: Path) -> str | None:
    return latest_models(events_of(folder))


def held_by(config: Config, *without: str) -> dict[str, Examples]:
    """What each client but some trains on."""
    clients = build_run(config).population.clients
    return {c.name: c.train for c in clients if c.name not in without}


def computed(folder: Path, held: Mapping[str, Examples]) -> str:
    """The heads of sums over these records, in the clusters that are recorded."""
    built, names = build_run(RunFolder.existing(folder).config()), load(folder).names
    chosen: dict[str, int] = {}
    for event in facts(folder, ClientsAssigned):
        chosen |= event.clusters if event.by != "final" else {}
    assert set(names) == set(held)
    fresh = built.algorithm.init(built.streams).clusters
    d, records = fresh[0]["head.weight"].shape[1] + 1, built.records
    assert records is not None
    by_handle = {names[name]: examples for name, examples in held.items()}
    counted = {h: chosen[h] for h in by_handle}
    sums = tuple(
        records.sums((by_handle[h] for h, own in counted.items() if own == j), d) for j in range(2)
    )
    known = ClusterSums(pooling=POOLING, regularisation=LAMBDA).of(sums, counted)
    clients_per_cluster = known.clients_per_cluster
    heads = (known.head(j).params if clients_per_cluster[j] else fresh[j] for j in range(2))
    return model_hash(tuple(heads))
