from .aggregation.base import (
    Aggregation,
    AggregationResult,
    ClientUpdate,
    ClusterMeans,
    ClusterwiseAggregation,
    mean_per_cluster,
)
from .aggregation.server import ServerOptimizer
from .algorithms.algorithm import Algorithm, Traits
from .algorithms.clients import Clients, Setup
from .algorithms.selection import ByLoss, ByThreshold, ClusterSelection, SelectionInputs, Weighted
from .algorithms.state import RoundResult, ServerState
from .api.calls import EarlyStopping, load, resume, run, sweep
from .api.run import Run
from .auditor.audit import audit_model
from .auditor.result import ModelAudit
from .base.component_state import ComponentState, States, get_state, with_state
from .base.components import Component
from .base.errors import (
    ChecksumError,
    ConfigError,
    CoveyError,
    DataError,
    EngineError,
    LedgerError,
    LedgerLocked,
    LedgerMismatch,
    LedgerUnavailable,
    ModelError,
    RunError,
    UnfinishedError,
)
from .base.figure import Figure, RiskEstimate
from .base.history import History
from .base.names import Params, __version__
from .base.rng import Streams
from .data.clients import ClientData, PopulationRequest
from .data.examples import Examples, PublishedData, Shift
from .data.partition import Partition
from .data.source import Augment, ClientSource, DataSet
from .dp.one_run import OneRunAudit, audit_one_run, draw_canaries
from .engine.cpu import ReferenceEngine
from .engine.metrics import Metric
from .engine.optimizers import Adam, AdamW, Optimizer, Sgd
from .engine.protocol import Engine, EngineFactory, Scored, ScoringJob, TrainingJob
from .engine.recipe import Cosine, CrossEntropy, Loss, Objective, Proximal, Recipe, Schedule, Task
from .leaving.planning import ReturningClient
from .leaving.verification import verify
from .membership.attacks import Attack, Signals
from .membership.estimators import RiskContext, RiskEstimator
from .membership.truth import Target
from .models.build import ModelFactory
from .models.features import FeatureMap
from .runs.evaluation import RoundMetrics
from .settings.load import Config, load_config
from .settings.schema import Figures, TrackedRun, Tracker

__all__ = [
    "Adam",
    "AdamW",
    "Aggregation",
    "AggregationResult",
    "Algorithm",
    "Attack",
    "Augment",
    "ByLoss",
    "ByThreshold",
    "ChecksumError",
    "ClientData",
    "ClientSource",
    "ClientUpdate",
    "Clients",
    "ClusterMeans",
    "ClusterSelection",
    "ClusterwiseAggregation",
    "Component",
    "ComponentState",
    "Config",
    "ConfigError",
    "Cosine",
    "CoveyError",
    "CrossEntropy",
    "DataError",
    "DataSet",
    "EarlyStopping",
    "Engine",
    "EngineError",
    "EngineFactory",
    "Examples",
    "FeatureMap",
    "Figure",
    "Figures",
    "History",
    "LedgerError",
    "LedgerLocked",
    "LedgerMismatch",
    "LedgerUnavailable",
    "Loss",
    "Metric",
    "ModelAudit",
    "ModelError",
    "ModelFactory",
    "Objective",
    "OneRunAudit",
    "Optimizer",
    "Params",
    "Partition",
    "PopulationRequest",
    "Proximal",
    "PublishedData",
    "Recipe",
    "ReferenceEngine",
    "ReturningClient",
    "RiskContext",
    "RiskEstimate",
    "RiskEstimator",
    "RoundMetrics",
    "RoundResult",
    "Run",
    "RunError",
    "Schedule",
    "Scored",
    "ScoringJob",
    "SelectionInputs",
    "ServerOptimizer",
    "ServerState",
    "Setup",
    "Sgd",
    "Shift",
    "Signals",
    "States",
    "Streams",
    "Target",
    "Task",
    "TrackedRun",
    "Tracker",
    "TrainingJob",
    "Traits",
    "UnfinishedError",
    "Weighted",
    "__version__",
    "audit_model",
    "audit_one_run",
    "draw_canaries",
    "get_state",
    "load",
    "load_config",
    "mean_per_cluster",
    "resume",
    "run",
    "sweep",
    "verify",
    "with_state",
]
