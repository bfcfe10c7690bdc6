"""Anonymity sets of updates that nobody holds all at once: over sketches of them."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from covey.aggregation.merging import ClientUpdate
from covey.aggregation.sketches import Sketcher, sketcher
from covey.params import flatten, trained
from covey.rng import Streams
from covey.types import Handle, Params

__all__ = ["SketchedCluster", "sketched_clusters", "update_bytes"]

ROWS = 1024


@dataclass(frozen=True, slots=True, eq=False)
class SketchedCluster:
    """What is left of a cluster's updates once they have passed.

    Attributes:
        handles: of its clients, in client-name order.
        weights: of their updates.
        sketches: of their updates, some rows together; the last ones may be empty.
        model: sketch of the cluster's model, from which they trained.
    """

    sketch: Sketcher
    model: Float[Tensor, " numbers"]
    handles: list[Handle] = field(default_factory=list[Handle])
    weights: list[float] = field(default_factory=list[float])
    sketches: list[Float[Tensor, "rows numbers"]] = field(default_factory=list[Tensor])

    def take(self, each: ClientUpdate) -> None:
        """Put down the sketch of one more update, which is let go."""
        # Rows stand together: small tensors that stay, one between two updates that go,
        # would keep the memory of these from being used again.
        row = len(self.handles) % ROWS
        if row == 0:
            self.sketches.append(torch.zeros(ROWS, self.sketch.numbers))
        self.sketches[-1][row] = self.sketch(flatten(trained(each.update)))
        self.handles.append(each.handle)
        self.weights.append(each.weight)

    def points(self) -> Float[Tensor, "clients numbers"]:
        """Hand the sketches over, a client in each row; none are left."""
        found = torch.empty(len(self.handles), self.sketch.numbers)
        for own in reversed(found.split(ROWS)):
            own.copy_(self.sketches.pop()[: len(own)])
        return found


def sketched_clusters(
    clusters: tuple[Params, ...], updates: Iterable[ClientUpdate], streams: Streams
) -> dict[int, SketchedCluster]:
    """Return every cluster's sketches, with never more than one update at hand."""
    found: dict[int, SketchedCluster] = {}
    for each in updates:
        j = each.cluster
        if j not in found:
            start = flatten(trained(clusters[j]))
            # who knew it before could send what its sketch hides
            draws = streams.hidden().at("sketch", j).generator()
            sketch = sketcher(len(start), draws)
            found[j] = SketchedCluster(sketch, sketch(start))
        found[j].take(each)
    return found


def update_bytes(update: Params) -> int:
    """Return how many bytes an update takes in memory."""
    return sum(value.nbytes for value in update.values())
