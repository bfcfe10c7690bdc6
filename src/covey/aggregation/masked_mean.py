"""The weighted mean of updates that no server sees: fixed-point numbers under masks."""

from collections.abc import Iterable, Mapping
from functools import partial

import numpy as np
import torch
from jaxtyping import Int64

from covey.aggregation.merging import (
    AggregationResult,
    Aggregator,
    ClientUpdate,
    combined_per_cluster,
)
from covey.errors import ModelError
from covey.events import ClusterWaited
from covey.params import add
from covey.rng import Streams
from covey.secure_sums import secure_sum
from covey.types import Params

__all__ = [
    "LARGEST",
    "STEPS",
    "arrived_mean",
    "masked_mean",
    "mean_of_numbers",
    "numbers_of_update",
]

STEPS = 2**24
"""Steps of the grid in 1."""

LARGEST = 2.0**15
"""Entries of an update are cut to it, so that sums of many fit the ring."""

RING = 2**63


def masked_mean(min_cohort: int) -> Aggregator:
    """Return the mean of clients' updates, of which the server sees sums alone.

        theta_j <- theta_j + sum_i round(2^24 w_i u_i) / sum_i round(2^24 w_i)

    Where weights are whole numbers, and no entry is cut, no entry is further than 2^-25
    from the exact mean. A cluster of fewer clients keeps its model, and waits.

    Args:
        min_cohort: the fewest clients that a sum may be over.
    """

    def aggregate(
        models: tuple[Params, ...], updates: Iterable[ClientUpdate], _: Streams
    ) -> AggregationResult:
        combined = partial(_mean, min_cohort=min_cohort)
        return combined_per_cluster(models, updates, combined, min_cohort)

    return aggregate


def arrived_mean(min_cohort: int) -> Aggregator:
    """Return how models move by means that remote clients made under masks.

    Every update of a cluster is that mean already. Where none came, all wait.

    Args:
        min_cohort: the fewest clients that a sum may be over.
    """

    def aggregate(
        models: tuple[Params, ...], updates: Iterable[ClientUpdate], _: Streams
    ) -> AggregationResult:
        means: dict[int, Params] = {}
        for each in updates:
            means.setdefault(each.cluster, each.update)
        moved = (
            add(model, means[j]) if j in means else model
            for j, model in enumerate(models)
        )
        facts = () if means else (ClusterWaited(0, 0, min_cohort),)
        return AggregationResult(tuple(moved), facts)

    return aggregate


def _mean(updates: list[ClientUpdate], min_cohort: int) -> Params:
    shapes = {name: value.shape for name, value in updates[0].update.items()}
    length = 1 + sum(shape.numel() for shape in shapes.values())
    sending = {
        each.handle: partial(numbers_of_update, each, len(updates)) for each in updates
    }
    found = secure_sum(sending, length, min_cohort).values
    return mean_of_numbers(found, shapes)


def mean_of_numbers(
    numbers: Int64[np.ndarray, " numbers"], shapes: Mapping[str, torch.Size]
) -> Params:
    """Return the weighted mean that a sum of `numbers_of_update` stands for."""
    found = torch.from_numpy(numbers).double()
    return _unflat(
        found[1:] / found[0], {name: shapes[name] for name in sorted(shapes)}
    )


def numbers_of_update(
    each: ClientUpdate, clients: int
) -> Int64[np.ndarray, " numbers"]:
    """Return what a client sends: its weight, and its weighted update, in steps.

    Args:
        each: what it trained.
        clients: how many are added up.

    Raises:
        ModelError: the sum would be of counters, or too large.
    """
    if not all(value.is_floating_point() for value in each.update.values()):
        raise ModelError(
            "Under masks numbers are added up, and this model has counters (as BatchNorm "
            "has), of which the largest is taken. Choose a model without them, or set "
            "privacy.secure_sums = false."
        )
    if each.weight * LARGEST * STEPS * clients >= RING:
        raise ModelError(
            f"Under masks, weights must stay below {RING / (LARGEST * STEPS):.0f} divided "
            f"by the number of clients, found {each.weight} of {clients} clients. Set "
            f"merge.weights = 'equal'."
        )
    ordered = (each.update[name] for name in sorted(each.update))
    flat = torch.cat([value.double().reshape(-1) for value in ordered])
    cut = flat.clamp(-LARGEST, LARGEST) * each.weight
    whole = torch.cat([torch.tensor([each.weight], dtype=torch.float64), cut])
    return (whole * STEPS).round_().to(torch.int64).numpy()


def _unflat(
    numbers: torch.Tensor, shapes: Mapping[str, torch.Size]
) -> dict[str, torch.Tensor]:
    parts = numbers.split([shape.numel() for shape in shapes.values()])
    return {
        name: part.reshape(shape).float()
        for (name, shape), part in zip(shapes.items(), parts, strict=True)
    }
