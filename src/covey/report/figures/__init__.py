"""What a run looks like: pure functions from its story to pictures."""

from covey.report.figures.attacks import roc_figure
from covey.report.figures.calibration import calibration_figure
from covey.report.figures.outcome import (
    fairness_figure,
    samples_figure,
    violations_figure,
)
from covey.report.figures.overlay import overlaid_accuracy
from covey.report.figures.pareto import pareto_figure
from covey.report.figures.risk import risk_figure
from covey.report.figures.rounds import (
    accuracy_figure,
    clusters_figure,
    prices_figure,
)
from covey.report.figures.spent import epsilon_figure, spent_figure
from covey.report.figures.style import png, svg

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
