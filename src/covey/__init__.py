"""Federated learning in which every client chooses how exposed it is, and can leave.

>>> import covey
>>> result = covey.run(out="runs/first")
>>> result.summary["accuracy"]
"""

from covey.aggregation import ClientUpdate, Merged, mean_per_cluster
from covey.api import (
    Result,
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
    "Result",
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
