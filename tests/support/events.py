"""Events of runs that nobody played."""

from typing import Any

from covey.base.events import RunStarted


def started(**changes: Any) -> RunStarted:
    """A run of two clusters and two groups, whose clients are those that are given."""
    facts: dict[str, Any] = {
        "covey_version": "0.2.0",
        "method": "ifca-mir",
        "config_hash": "c0ffee",
        "data_hash": "da7a",
        "num_clusters": 2,
        "rounds": 4,
        "group_names": ("minority", "majority"),
        "groups": {},
        "risk_thresholds": {},
        "risk_lifetime": 4,
        "notes": (),
    }
    return RunStarted(**{**facts, **changes})
