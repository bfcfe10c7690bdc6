from .aggregation import (
    Aggregation,
    AggregationResult,
    ClientUpdate,
    ClusterwiseAggregation,
    ServerOptimizer,
    mean_per_cluster,
)
from .algorithms import (
    Algorithm,
    Calibration,
    Clients,
    RoundResult,
    ServerState,
    Setup,
)
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
    ClusterSelection,
    SelectionInputs,
    select_by_loss,
    select_by_threshold,
    select_weighted,
)
from .components import (
    Capability,
    Claim,
    Component,
    ComponentState,
    States,
    keep,
    kept,
)
from .config import (
    Config,
    load_config,
)
from .data import (
    ClientData,
    ClientSource,
    DataSet,
    Examples,
    Partition,
    PopulationRequest,
    Shift,
    Source,
)
from .engine import (
    EngineFactory,
)
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
from .history import (
    History,
)
from .membership import (
    Attack,
    RiskContext,
    RiskEstimate,
    RiskEstimator,
    Signals,
    Target,
    Withheld,
)
from .models import (
    ModelFactory,
)
from .rng import (
    Streams,
)
from .runtime import (
    Returning,
)
from .version import (
    __version__,
)

__all__ = [
    "Aggregation",
    "AggregationResult",
    "Algorithm",
    "Attack",
    "Calibration",
    "Capability",
    "ChecksumError",
    "Claim",
    "ClientData",
    "ClientSource",
    "ClientUpdate",
    "Clients",
    "ClusterSelection",
    "ClusterwiseAggregation",
    "Component",
    "ComponentState",
    "Config",
    "ConfigError",
    "CoveyError",
    "DataError",
    "DataSet",
    "EngineFactory",
    "Examples",
    "History",
    "LedgerError",
    "LedgerLocked",
    "LedgerMismatch",
    "LedgerUnavailable",
    "ModelError",
    "ModelFactory",
    "Partition",
    "PopulationRequest",
    "Returning",
    "RiskContext",
    "RiskEstimate",
    "RiskEstimator",
    "RoundResult",
    "Run",
    "RunError",
    "SelectionInputs",
    "ServerOptimizer",
    "ServerState",
    "Setup",
    "Shift",
    "Signals",
    "Source",
    "States",
    "Streams",
    "Target",
    "Withheld",
    "__version__",
    "audit",
    "audit_epsilon",
    "game",
    "keep",
    "kept",
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
