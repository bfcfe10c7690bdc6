from .aggregation import ClientUpdate, Merged, mean_per_cluster
from .api import (
    Run,
    audit,
    audit_epsilon,
    game,
    load,
    resume,
    run,
    verify,
)
from .clustering import (
    Ballot,
    select_by_loss,
    select_by_threshold,
    select_weighted,
)
from .config import Config, load_config
from .errors import (
    ChecksumError,
    ConfigError,
    CoveyError,
    DataError,
    LedgerError,
    LedgerLocked,
    LedgerMismatch,
    LedgerUnavailable,
    ModelError,
    RunError,
)
from .history import History
from .membership import Signals
from .runtime import Returning
from .version import __version__

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
    "LedgerUnavailable",
    "Merged",
    "ModelError",
    "Returning",
    "Run",
    "RunError",
    "Signals",
    "__version__",
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
