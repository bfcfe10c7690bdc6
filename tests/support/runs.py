"""Settings of small runs: one builder, whatever a room plays."""

from collections.abc import Mapping
from typing import Any

from covey import Config

TINY: Mapping[str, Any] = {
    "rounds": 4,
    # no non-members: the truth at the end is a third of a tiny run's time
    "population": {"clients": 6, "examples_per_client": 20, "audit_examples": 0},
    "model": {"name": "mlp"},
    "train": {"learning_rate": 0.5},
    # not "warm": its k-means would be half of a tiny run's time
    "method": {"name": "ifca-mir", "initialisation": "random"},
    "risk": {"every": 2},
}
SMALL: Mapping[str, Any] = {
    "rounds": 2,
    "population": TINY["population"],
    "model": {"name": "linear"},
    "method": {"name": "fedavg"},
    "risk": {"name": "none"},
    "engine": {"name": "reference"},
}


def tiny(**sections: Any) -> Config:
    """Return settings of clusters by risk, in a second, with some sections replaced."""
    return Config.of(_changed(TINY, sections))


def small(**sections: Any) -> dict[str, Any]:
    """Return settings of two rounds of FedAvg, in a part of a second, with some replaced."""
    return _changed(SMALL, sections)


def _changed(settings: Mapping[str, Any], sections: Mapping[str, Any]) -> dict[str, Any]:
    """A section adds to what stands there; only one that names a method replaces all of it."""
    changed = dict(settings)
    for name, value in sections.items():
        adds = isinstance(value, dict) and not (name == "method" and "name" in value)
        changed[name] = {**changed.get(name, {}), **value} if adds else value
    return changed
