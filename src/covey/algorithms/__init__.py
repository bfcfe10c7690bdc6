"""Algorithms of federated learning, composed of train, evaluate, select and aggregate."""

from covey.algorithms.algorithm import Algorithm, Setup, Strategy, Subtraction
from covey.algorithms.backend import Backend
from covey.algorithms.base import (
    Cohort,
    OwnRisks,
    RiskEstimates,
    RoundResult,
    ServerState,
    Waiting,
    initial_state,
)
from covey.algorithms.calibration import calibrated_by, calibration_recipe
from covey.algorithms.client_memory import (
    PERSONAL,
    ClientMemory,
    ObjectiveInputs,
    personal_models,
)
from covey.algorithms.clients import Clients
from covey.algorithms.cluster_selection import (
    LatestLosses,
    Losses,
    Prices,
    SelectionConfig,
    SelectionResult,
    TrainAtOnce,
    no_prices,
    price_update,
    selection_inputs,
)
from covey.algorithms.ditto import Ditto
from covey.algorithms.divergence import divergences
from covey.algorithms.fedavg import FedAvg, LocalTraining
from covey.algorithms.fedprox import FedProx
from covey.algorithms.ifca import Ifca, IfcaMir
from covey.algorithms.initialization import WarmStart, group_initialized, warm_started
from covey.algorithms.local_clients import LocalClients
from covey.algorithms.local_training import (
    Train,
    Training,
    evaluate_with,
    noise_events_of,
    train_with,
)
from covey.algorithms.loss_traces import loss_trace
from covey.algorithms.masked_answers import (
    masked_counts,
    masked_training,
    numbers_of_counts,
)
from covey.algorithms.masked_sums import numbers_of
from covey.algorithms.pooling import (
    Control,
    PoolingShares,
    fixed_share,
    pooled,
    share_by_risk,
)
from covey.algorithms.records import (
    Records,
    RecordsHere,
    heads_of,
    losses_without_oneself,
)
from covey.algorithms.redteam import (
    due_to_measure,
    estimate_lifetime,
    red_teamed,
    self_assessed,
    targets,
    with_own_estimates,
)
from covey.algorithms.remote import (
    ClientContext,
    ClientRequest,
    ClientResponse,
    RemoteClients,
    RequestType,
    Send,
    SummedUp,
    SumStep,
    loss_counter,
)
from covey.algorithms.remote_records import RemoteRecords
from covey.algorithms.round_steps import Stalled, Steps

__all__ = [
    "PERSONAL",
    "Algorithm",
    "Backend",
    "ClientContext",
    "ClientMemory",
    "ClientRequest",
    "ClientResponse",
    "Clients",
    "Cohort",
    "Control",
    "Ditto",
    "FedAvg",
    "FedProx",
    "Ifca",
    "IfcaMir",
    "LatestLosses",
    "LocalClients",
    "LocalTraining",
    "Losses",
    "ObjectiveInputs",
    "OwnRisks",
    "PoolingShares",
    "Prices",
    "Records",
    "RecordsHere",
    "RemoteClients",
    "RemoteRecords",
    "RequestType",
    "RiskEstimates",
    "RoundResult",
    "SelectionConfig",
    "SelectionResult",
    "Send",
    "ServerState",
    "Setup",
    "Stalled",
    "Steps",
    "Strategy",
    "Subtraction",
    "SumStep",
    "SummedUp",
    "Train",
    "TrainAtOnce",
    "Training",
    "Waiting",
    "WarmStart",
    "calibrated_by",
    "calibration_recipe",
    "divergences",
    "due_to_measure",
    "estimate_lifetime",
    "evaluate_with",
    "fixed_share",
    "group_initialized",
    "heads_of",
    "initial_state",
    "loss_counter",
    "loss_trace",
    "losses_without_oneself",
    "masked_counts",
    "masked_training",
    "no_prices",
    "noise_events_of",
    "numbers_of",
    "numbers_of_counts",
    "personal_models",
    "pooled",
    "price_update",
    "red_teamed",
    "selection_inputs",
    "self_assessed",
    "share_by_risk",
    "targets",
    "train_with",
    "warm_started",
    "with_own_estimates",
]
