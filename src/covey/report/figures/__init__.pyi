from .attacks import roc_figure
from .calibration import calibration_figure
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
from .style import png, svg

__all__ = [
    "accuracy_figure",
    "calibration_figure",
    "clusters_figure",
    "epsilon_figure",
    "fairness_figure",
    "overlaid_accuracy",
    "pareto_figure",
    "png",
    "prices_figure",
    "risk_figure",
    "roc_figure",
    "samples_figure",
    "spent_figure",
    "svg",
    "violations_figure",
]
