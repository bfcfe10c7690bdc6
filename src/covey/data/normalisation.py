"""Every example by itself: its mean is subtracted, and its standard deviation made one."""

from dataclasses import replace

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from covey.data.examples import Client, Examples, to_floats
from covey.data.population import Group, Population
from covey.data.shift import CHUNK
from covey.errors import DataError

__all__ = ["normalised", "normalised_population"]

FLOOR = 1e-5
"""The least standard deviation, in units of 1 plus the mean's size, that is no rounding."""


def normalised(
    inputs: Shaped[Tensor, "examples *shape"],
) -> Float[Tensor, "examples *shape"]:
    """Return (x - mean) / standard deviation, over all numbers of each example, float32.

    No other example has a part in it. An example whose numbers are all the same, up to
    rounding, becomes zeros: so normalising twice is normalising once.
    """
    axes = tuple(range(1, inputs.dim()))
    floats = to_floats(inputs).float()
    # Sums in float64, rounded to float32, hardly differ from machine to machine.
    exact = floats.double()
    mean = exact.mean(dim=axes, keepdim=True)
    deviation = (exact - mean).square().mean(dim=axes, keepdim=True).sqrt()
    constant = deviation <= FLOOR * (1 + mean.abs())
    return ((floats - mean.float()) / deviation.float()).masked_fill(constant, 0.0)


def normalised_population(population: Population) -> Population:
    """Return the population as models see it when every example is normalised.

    What is not shifted yet stays as it is, and is normalised when it is shifted.
    """
    return replace(
        population,
        clients=tuple(_client(client) for client in population.clients),
        groups=tuple(
            Group(each.name, replace(each.shift, normalise=normalised))
            for each in population.groups
        ),
        test=tuple(_examples(each, "test") for each in population.test),
        non_members=tuple(
            _examples(each, "non-members") for each in population.non_members
        ),
        pool=population.pool
        if len(population.pool)
        else _examples(population.pool, "pool"),
    )


def _client(client: Client) -> Client:
    return replace(
        client,
        train=_examples(client.train, client.name),
        holdout=_examples(client.holdout, client.name),
    )


def _examples(found: Examples, whose: str) -> Examples:
    if found.inputs.dtype == torch.int64:
        raise DataError(
            f"data.normalise = 'image' needs images or other numbers, found ids (whole "
            f"numbers, {found.inputs.dtype}) of {whose}. Set data.normalise = 'none', or "
            f"make the inputs float32 if they are features."
        )
    parts = [normalised(part) for part in found.inputs.split(CHUNK)]
    return Examples(torch.cat(parts), found.labels)
