"""A small run of solved heads, and what stands in its ledger."""

from pathlib import Path
from typing import Any

from covey.unlearning.participation import latest_models
from recorded import events_of

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


def model_of(folder: Path) -> str | None:
    return latest_models(events_of(folder))
