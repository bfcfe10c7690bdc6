"""Sketches: short random images of long vectors, from which distances can be told."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["SKETCH_NUMBERS", "Sketcher", "sketch_error", "sketch_size", "sketcher"]

Sketch = Float[Tensor, " numbers"]

SKETCH_NUMBERS = 4096
"""Of each update's sketch: 16 KB, a standard error of 2.2% of a squared distance."""

TOO_NEAR = 0.005
"""Chance, at any data, that two vectors are taken for nearer than they are."""


@dataclass(frozen=True, slots=True, eq=False)
class Sketcher:
    """A linear map S from d coordinates to m numbers that keeps distances on average.

    (S u)_b = sum of s_i u_i over the coordinates i with h(i) = b

    s_i is 1 or -1, each as likely. h puts every run of m coordinates into all m places,
    shifted by a random number of places, another one for each run. So two coordinates share
    a place with a probability of 1/m at most, and

    E |S u|^2 = |u|^2,  Var |S u|^2 <= (2 / m) |u|^4

    for every u: with Chebyshev, |S u|^2 is off by more than a share e of |u|^2 with a
    probability of 2 / (m e^2) at most. Where no few coordinates make up a vector, it is
    distributed nearly as |u|^2 chi^2_m / m, and far deviations are rarer by far. As S is
    linear, S u - S v tells of the distance of u and v.

    Attributes:
        signs: of each coordinate, s_i.
        shifts: of each run of m coordinates.
        numbers: m.

    References:
        Charikar, Chen, Farach-Colton, Finding Frequent Items in Data Streams, 2002.
        Thorup, Zhang, Tabulation-Based 5-Independent Hashing with Applications to Linear
        Probing and Second Moment Estimation, 2012, section 1.2.
        Weinberger et al., Feature Hashing for Large Scale Multitask Learning, 2009.
    """

    signs: Float[Tensor, " coordinates"]
    shifts: tuple[int, ...]
    numbers: int

    def __call__(self, vector: Float[Tensor, " coordinates"]) -> Sketch:
        """Return the sketch; runs are added one after another, so that bits are fixed."""
        m = self.numbers
        places = torch.zeros(2 * m)  # a shifted run ends in the second half
        runs = zip(vector.float().split(m), self.signs.split(m), strict=True)
        for shift, (values, signs) in zip(self.shifts, runs, strict=True):
            places[shift : shift + len(values)].addcmul_(values, signs)
        return places[:m] + places[m:]

    def surely_within(self, distance: float) -> float:
        """Return the estimate up to which two vectors are taken for so near, or nearer.

        t^2 = (1 - e) distance^2 with 2 / (m e^2) = .005: of two that are farther apart the
        estimate is at most t with that probability, or less.
        """
        if len(self.shifts) <= 1:  # no distance is changed
            return distance
        e = math.sqrt(2 / (self.numbers * TOO_NEAR))
        return distance * math.sqrt(max(1 - e, 0.0))


def sketcher(
    coordinates: int, generator: np.random.Generator, numbers: int = SKETCH_NUMBERS
) -> Sketcher:
    """Draw a map from vectors of so many coordinates to so many numbers.

    With no more coordinates than numbers it changes no distance at all.
    """
    runs = math.ceil(coordinates / numbers)
    signs = generator.integers(2, size=coordinates, dtype=np.int8)
    shifts = generator.integers(numbers, size=runs)
    return Sketcher(
        torch.from_numpy(signs).float() * 2 - 1, (*shifts.tolist(),), numbers
    )


def sketch_error(numbers: int) -> float:
    """Return sqrt(2 / m), the standard error of a squared distance as a share of it."""
    return math.sqrt(2 / numbers)


def sketch_size(error: float, chance: float) -> int:
    """Return the least m with which a squared distance is within a share `error`.

    It is off by more with a probability of at most `chance`: m >= 2 / (error^2 chance).

    Raises:
        ValueError: they are not above 0.
    """
    if not (error > 0 and chance > 0):
        raise ValueError(
            f"expected an error and a chance above 0, found {error} and {chance}: no "
            "sketch is never off"
        )
    return math.ceil(2 / (error**2 * chance))
