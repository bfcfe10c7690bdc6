from .aggregation import AggregationResult, ClientUpdate, mean_per_cluster
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
    SelectionInputs,
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
    "AggregationResult",
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
    "ModelError",
    "Returning",
    "Run",
    "RunError",
    "SelectionInputs",
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
