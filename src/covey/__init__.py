"""Federated learning in which every client chooses how exposed it is, and can leave.

>>> import covey
>>> run = covey.run(out="runs/first")
>>> run.summary["accuracy"]
"""

from covey.aggregation import ClientUpdate, Merged, mean_per_cluster
from covey.api import (
    Run,
    audit,
    audit_epsilon,
    game,
    load,
    resume,
    run,
    verify,
)
from covey.clustering import (
    Ballot,
    select_by_loss,
    select_by_threshold,
    select_weighted,
)
from covey.config import Config, load_config
from covey.errors import (
    ChecksumError,
    ConfigError,
    CoveyError,
    DataError,
    LedgerError,
    LedgerLocked,
    LedgerMismatch,
    ModelError,
    RunError,
)
from covey.history import History
from covey.redteam import Signals

__all__ = [
    "Ballot",
    "ChecksumError",
    "ClientUpdate",
    "Config",
    "ConfigError",
    "CoveyError",
    "DataError",
    "History",
    "LedgerError",
    "LedgerLocked",
    "LedgerMismatch",
    "Merged",
    "ModelError",
    "Run",
    "RunError",
    "Signals",
    "audit",
    "audit_epsilon",
    "game",
    "load",
    "load_config",
    "mean_per_cluster",
    "resume",
    "run",
    "select_by_loss",
    "select_by_threshold",
    "select_weighted",
    "verify",
]


def __getattr__(name: str) -> object:
    """Find what was renamed, for a release."""
    if name != "Result":
        raise AttributeError(f"module 'covey' has no attribute {name!r}")
    import warnings

    warnings.warn(
        "covey.Result is now called covey.Run; the old name goes with the next release.",
        DeprecationWarning,
        stacklevel=2,
    )
    return Run
