"""Algorithms of federated learning, composed of train, evaluate, select and merge."""

from covey.algorithms.base import (
    Cohort,
    KnownRisk,
    Memory,
    Played,
    ServerState,
    Strategy,
    fresh_state,
)
from covey.algorithms.cluster_selection import (
    Choosing,
    Look,
    Market,
    free_of_charge,
    priced_towards,
    smoothed,
)
from covey.algorithms.divergence import divergences
from covey.algorithms.fedavg import fedavg, isolated, local_training
from covey.algorithms.federaser import calibrated_by
from covey.algorithms.ifca import ifca, ifca_mir
from covey.algorithms.initialization import (
    WarmStart,
    different_models,
    from_groups,
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
    due_to_judge,
    figure_lives,
    red_teamed,
    self_judged,
    targets,
    with_findings,
)
from covey.algorithms.remote import Answer, Apart, Call, Reach, Slip, Task, counted_by
from covey.algorithms.round_steps import (
    Evaluate,
    Perturbed,
    Steps,
    Train,
    evaluate_with,
    perturbed_with,
    sparing,
    train_with,
    unperturbed,
)

__all__ = [
    "MENU",
    "Answer",
    "Apart",
    "Call",
    "Choosing",
    "Cohort",
    "Control",
    "Evaluate",
    "KnownRisk",
    "Layers",
    "Look",
    "Market",
    "Memory",
    "Perturbed",
    "Played",
    "Reach",
    "ServerState",
    "Slip",
    "Steps",
    "Strategy",
    "Task",
    "Train",
    "WarmStart",
    "calibrated_by",
    "counted_by",
    "different_models",
    "divergences",
    "due_to_judge",
    "evaluate_with",
    "fedavg",
    "figure_lives",
    "fixed_share",
    "free_of_charge",
    "fresh_state",
    "from_groups",
    "head_first",
    "ifca",
    "ifca_mir",
    "isolated",
    "local_training",
    "menu_shares",
    "on_the_menu",
    "one_model",
    "perturbed_with",
    "pooled",
    "priced_towards",
    "red_teamed",
    "self_judged",
    "share_by_risk",
    "smoothed",
    "sparing",
    "targets",
    "train_with",
    "uniform",
    "unperturbed",
    "warm_started",
    "with_findings",
]
