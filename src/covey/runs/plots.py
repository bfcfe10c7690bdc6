"""A run's pictures, for a notebook."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from covey.history import History
from covey.report import figures

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Plots"]


@dataclass(frozen=True, slots=True)
class Plots:
    """The pictures of a run's report, as matplotlib figures: to be shown, changed, saved.

    A notebook shows what a cell ends with: `run.plot.accuracy()`.

    Attributes:
        history: returns the run's story as it is now.
        baseline: the same of the FedAvg run beside it, if there is one.
    """

    history: Callable[[], History]
    baseline: Callable[[], History | None]

    def accuracy(self) -> "Figure":
        """Draw accuracy on unseen data per round, overall and by group."""
        return figures.accuracy_figure(self.history(), self.baseline())

    def risk(self) -> "Figure":
        """Draw each cluster's measured risk per round, beside the truth at the end."""
        return figures.risk_figure(self.history())

    def sizes(self) -> "Figure":
        """Draw how many clients sit in each cluster, and how many moved, per round."""
        return figures.clusters_figure(self.history())

    def violations(self) -> "Figure":
        """Draw what each client accepts against its final model's risk."""
        return figures.violations_figure(self.history())

    def fairness(self) -> "Figure":
        """Draw each gap between groups."""
        return figures.fairness_figure(self.history())

    def prices(self) -> "Figure":
        """Draw each cluster's subsidy per round, where a selection sets any."""
        return figures.prices_figure(self.history())

    def privacy_spent(self) -> "Figure":
        """Draw epsilon over the rounds, where noise is accounted for."""
        return figures.spent_figure(self.history())
