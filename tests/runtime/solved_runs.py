"""A small run of solved heads, and what stands in its ledger."""

from pathlib import Path
from typing import Any

from covey.ledger.store import Ledger
from covey.runtime.folder import RunFolder
from covey.runtime.session import read_events
from covey.unlearning.participation import latest_models

POOLING, LAMBDA = 0.3, 0.5
SOLVED: dict[str, Any] = {
    "rounds": 3,
    "population": {"clients": 8, "examples_per_client": 12, "audit_examples": 0},
    "model": {"name": "linear-head", "features": {"filters": 4, "size": 3, "pool": 2}},
    "method": {
        "name": "solved",
        "selection": "loss",
        "initialisation": "random",
        "pooling": POOLING,
        "regularisation": LAMBDA,
    },
    "risk": {"name": "none"},
}


def recorded(folder: Path) -> list[tuple[int | None, Any]]:
    with Ledger.read(RunFolder(folder).ledger) as ledger:
        return [(t, each) for t, events in read_events(ledger) for each in events]


def model_of(folder: Path) -> str | None:
    return latest_models(recorded(folder))
