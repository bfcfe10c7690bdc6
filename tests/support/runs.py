"""Settings of small runs: one builder, whatever a room plays."""

from typing import Any

from covey import Config

TINY = {
    "rounds": 4,
    # no non-members: the truth at the end is a third of a tiny run's time
    "population": {"clients": 6, "examples_per_client": 20, "audit_examples": 0},
    "model": {"name": "mlp"},
    "train": {"learning_rate": 0.5},
    # not "warm": its k-means would be half of a tiny run's time
    "method": {"name": "ifca-mir", "initialisation": "random"},
    "risk": {"every": 2},
}


def tiny(**sections: Any) -> Config:
    """Return settings of a run that takes a second, with some sections replaced.

    A section that names another component replaces the whole; else it adds to it.
    """
    merged: dict[str, Any] = dict(TINY)
    for name, value in sections.items():
        adds = isinstance(value, dict) and not (name == "method" and "name" in value)
        merged[name] = {**merged.get(name, {}), **value} if adds else value
    return Config.of(merged)
