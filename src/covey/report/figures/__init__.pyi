from .attacks import roc_figure
from .fairness_plots import (
    fairness_figure,
    samples_figure,
    violations_figure,
)
from .overlay import overlaid_accuracy
from .pareto import pareto_figure
from .privacy_budget import epsilon_figure, spent_figure
from .risk import risk_figure
from .rounds import (
    accuracy_figure,
    clusters_figure,
    prices_figure,
)
from .style import (
    GROUPS,
    INK,
    MARKERS,
    MISSING,
    cycled,
    key,
    legend,
    png,
    quiet,
    say,
    svg,
)

__all__ = [
    "GROUPS",
    "INK",
    "MARKERS",
    "MISSING",
    "accuracy_figure",
    "clusters_figure",
    "cycled",
    "epsilon_figure",
    "fairness_figure",
    "key",
    "legend",
    "overlaid_accuracy",
    "pareto_figure",
    "png",
    "prices_figure",
    "quiet",
    "risk_figure",
    "roc_figure",
    "samples_figure",
    "say",
    "spent_figure",
    "svg",
    "violations_figure",
]
