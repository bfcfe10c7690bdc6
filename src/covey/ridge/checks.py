"""Whether what somebody sent can be sums over records, or a mean of features."""

import torch
from jaxtyping import Int64
from torch import Tensor

from covey.ridge.sums import FEATURE_STEPS, LARGEST, Sums, half_of

TOLERANCE = 1e-9
"""How far below 0 an eigenvalue may be, in units of the largest diagonal."""


def fault_of(sums: Sums, records: int | None = None) -> str:
    """Return why these are no sums over so many records, or over any; "" if they may be.

    With s = [phi; onehot], sum_r s s^T = [A, B; B^T, diag(n)]: no eigenvalue is below 0. So
    sums that pass are, up to the tolerance, those of some real features.
    """
    gram, targets = sums.gram, sums.targets
    if records is None:
        records, rest = divmod(int(gram[-1]), FEATURE_STEPS**2)
        if rest or records < 1:
            return "its sums must be over whole examples"
    if _beyond(gram, LARGEST**2 * records) or _beyond(targets, LARGEST * records):
        return f"its sums must be of features of at most {LARGEST} steps"
    if int(gram[-1]) != FEATURE_STEPS**2 * records:
        return f"its sums must be over the {records} examples that it announced"
    return _fault_of_classes(sums) or (
        "" if _is_square(sums) else "its sums must be sums of squares"
    )


def fault_of_mean(mean: Tensor) -> str:
    """Return why this is no mean of features in steps; "" if it may be."""
    fits = bool((mean.abs() <= LARGEST).all()) and float(mean[-1]) == FEATURE_STEPS
    return "" if fits else f"its mean must be of features of at most {LARGEST} steps"


def _fault_of_classes(sums: Sums) -> str:
    """Return why the sums by class do not fit to the others."""
    bias, counts = sums.gram[-len(sums.targets) :], sums.targets[-1]
    if bool((counts < 0).any() | (counts % FEATURE_STEPS).any()):
        return "its sums must count whole examples of each class"
    if not torch.equal(sums.targets.sum(dim=1) * FEATURE_STEPS, bias):
        return "its sums over classes must add up to those over all its examples"
    return ""


def _beyond(numbers: Int64[Tensor, "..."], most: int) -> bool:
    low, high = numbers.aminmax()
    return int(low) < -most or int(high) > most


def _is_square(sums: Sums) -> bool:
    """Say whether the sums over features and classes together have no direction below 0."""
    d, classes = sums.targets.shape
    whole = torch.zeros(d + classes, d + classes, dtype=torch.float64)
    whole[:d, :d].masked_scatter_(half_of(d), sums.gram.double())
    whole[d:, :d] = sums.targets.T.double() * FEATURE_STEPS
    counts = sums.targets[-1].double() * FEATURE_STEPS
    whole.diagonal()[d:] = counts
    whole.diagonal().add_(TOLERANCE * sums.largest)
    return int(torch.linalg.cholesky_ex(whole).info) == 0
