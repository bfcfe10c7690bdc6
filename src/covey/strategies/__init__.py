"""Algorithms of federated learning, composed of train, evaluate, select and merge."""

from covey.strategies.apart import Answer, Apart, Call, Reach, Slip, Task, counted_by
from covey.strategies.base import (
    Cohort,
    KnownRisk,
    Memory,
    Played,
    ServerState,
    Strategy,
    fresh_state,
)
from covey.strategies.choices import (
    Choosing,
    Look,
    Market,
    free_of_charge,
    priced_towards,
    smoothed,
)
from covey.strategies.divergence import divergences
from covey.strategies.fedavg import fedavg, isolated, local_training
from covey.strategies.federaser import calibrated_by
from covey.strategies.ifca import ifca, ifca_mir
from covey.strategies.menu import SHARES as MENU
from covey.strategies.menu import menu_shares, on_the_menu
from covey.strategies.pooling import (
    Control,
    Layers,
    fixed_share,
    head_first,
    pooled,
    share_by_risk,
    uniform,
)
from covey.strategies.redteam import (
    due_to_judge,
    figure_lives,
    red_teamed,
    self_judged,
    targets,
    with_findings,
)
from covey.strategies.starts import (
    WarmStart,
    different_models,
    from_groups,
    one_model,
    warm_started,
)
from covey.strategies.steps import (
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
