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


@dataclass(frozen=True, slots=True, eq=False)
class SketchedCluster:
    """What is left of a cluster's updates once they have passed.

    Attributes:
        handles: of its clients, in client-name order.
        weights: of their updates.
        sketches: of their updates.
        model: sketch of the cluster's model, from which they trained.
    """

    sketch: Sketcher
    model: Float[Tensor, " numbers"]
    handles: list[Handle] = field(default_factory=list[Handle])
    weights: list[float] = field(default_factory=list[float])
    sketches: list[Float[Tensor, " numbers"]] = field(default_factory=list[Tensor])

    def points(self) -> Float[Tensor, "clients numbers"]:
        """Return the sketches, a client in each row."""
        return torch.stack(self.sketches)


def sketched_clusters(
    clusters: tuple[Params, ...], updates: Iterable[ClientUpdate], streams: Streams
) -> dict[int, SketchedCluster]:
    """Return every cluster's sketches, with never more than one update at hand."""
    found: dict[int, SketchedCluster] = {}
    for each in updates:
        j = each.cluster
        if j not in found:
            start = flatten(trained(clusters[j]))
            sketch = sketcher(len(start), streams.at("sketch", j).generator())
            found[j] = SketchedCluster(sketch, sketch(start))
        own = found[j]
        own.handles.append(each.handle)
        own.weights.append(each.weight)
        own.sketches.append(own.sketch(flatten(trained(each.update))))
    return found


def update_bytes(update: Params) -> int:
    """Return how many bytes an update takes in memory."""
    return sum(value.nbytes for value in update.values())
