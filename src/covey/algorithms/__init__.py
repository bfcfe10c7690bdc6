"""Algorithms of federated learning, composed of train, evaluate, select and merge."""

from covey.algorithms.base import (
    Cohort,
    KnownRisk,
    RoundResult,
    SelectionHistory,
    ServerState,
    Strategy,
    initial_state,
)
from covey.algorithms.cluster_selection import (
    LossSmoother,
    PriceUpdate,
    SelectionConfig,
    loss_smoother,
    no_prices,
    price_update,
)
from covey.algorithms.divergence import divergences
from covey.algorithms.fedavg import fedavg, isolated, local_training
from covey.algorithms.federaser import calibrated_by
from covey.algorithms.ifca import ifca, ifca_mir
from covey.algorithms.initialization import (
    WarmStart,
    different_models,
    group_initialized,
    one_model,
    warm_started,
)
from covey.algorithms.model_variants import SHARES as MENU
from covey.algorithms.model_variants import menu_shares, on_the_menu
from covey.algorithms.pooling import (
    Control,
    Layers,
    fixed_share,
    head_first,
    pooled,
    share_by_risk,
    uniform,
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
    loss_counter,
)
from covey.algorithms.round_steps import (
    Evaluate,
    NoiseEvents,
    Steps,
    Train,
    evaluate_with,
    freeze_clusters,
    no_noise_events,
    noise_events_of,
    train_with,
)

__all__ = [
    "MENU",
    "ClientContext",
    "ClientRequest",
    "ClientResponse",
    "Cohort",
    "Control",
    "Evaluate",
    "KnownRisk",
    "Layers",
    "LossSmoother",
    "NoiseEvents",
    "PriceUpdate",
    "RemoteClients",
    "RequestType",
    "RoundResult",
    "SelectionConfig",
    "SelectionHistory",
    "Send",
    "ServerState",
    "Steps",
    "Strategy",
    "Train",
    "WarmStart",
    "calibrated_by",
    "different_models",
    "divergences",
    "due_to_measure",
    "estimate_lifetime",
    "evaluate_with",
    "fedavg",
    "fixed_share",
    "freeze_clusters",
    "group_initialized",
    "head_first",
    "ifca",
    "ifca_mir",
    "initial_state",
    "isolated",
    "local_training",
    "loss_counter",
    "loss_smoother",
    "menu_shares",
    "no_noise_events",
    "no_prices",
    "noise_events_of",
    "on_the_menu",
    "one_model",
    "pooled",
    "price_update",
    "red_teamed",
    "self_assessed",
    "share_by_risk",
    "targets",
    "train_with",
    "uniform",
    "warm_started",
    "with_own_estimates",
]
