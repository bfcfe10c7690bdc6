"""Records that enter sums bounded, as noise is to hide them there."""

from covey.data.examples import Examples
from covey.engine.fixed_features import FeatureCache, LocalRecords
from covey.engine.task import Task
from covey.heads import WEIGHT_STEPS, HeadNoise, Rows, SumNoise

__all__ = ["BoundedRecords"]


class BoundedRecords(LocalRecords):
    """Simulated clients' records of which none, and no client, adds much to a sum.

    Args:
        features: computes them, and keeps them.
        scale: by which a head's scores become logits.
        task: its losses are told in nats.
        classes: how many outputs the head has.
        noise: on the sums, or on heads.
    """

    def __init__(
        self,
        features: FeatureCache,
        scale: float,
        task: Task,
        classes: int,
        noise: SumNoise | HeadNoise,
    ) -> None:
        super().__init__(features, scale, task, classes)
        self.noise = self._bound = noise

    def rows(self, examples: Examples, weight: int = WEIGHT_STEPS) -> Rows:
        """Return a client's records, bounded, by which its sums are made."""
        return self._bound.bounded(super().rows(examples, weight), self.classes)
