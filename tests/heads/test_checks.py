"""Sums that somebody sent: those of records pass, and those of no records do not."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from covey.models.ridge_sums import FEATURE_STEPS, Rows, Sums, fault_of, fault_of_mean, sums_of

D, CLASSES, RECORDS = 5, 3, 7


def records(size: int, seed: int = 0) -> Rows:
    draw = np.random.default_rng(seed)
    scale = draw.choice([1, 100, 2**15 - 1])
    steps = draw.integers(-scale, scale, (size, D), endpoint=True)
    steps[:, -1] = FEATURE_STEPS
    labels = torch.from_numpy(draw.integers(0, CLASSES, size))
    return Rows(torch.from_numpy(steps.astype(np.int16)), labels, weight=1)


def sums(rows: Rows) -> Sums:
    return sums_of([rows], D, CLASSES)


@given(st.integers(1, 40), st.integers(0, 2**31))
def test_whatever_are_sums_over_records_passes(size, seed):
    rows = records(size, seed)
    assert fault_of(sums(rows), size) == ""
    assert fault_of_mean(rows.features.double().mean(dim=0)) == ""


def changed(gram: dict[int, int] | None = None, targets: object = None) -> Sums:
    honest = sums(records(RECORDS))
    new = Sums(honest.gram.clone(), honest.targets.clone())
    for at, value in (gram or {}).items():
        new.gram[at] = value
    if callable(targets):
        targets(new.targets)
    return new


def moved(of: torch.Tensor) -> None:
    """One record of another class, for the bias alone."""
    of[-1, 0] += FEATURE_STEPS
    of[-1, 1] -= FEATURE_STEPS * (RECORDS + 1)


def shifted(of: torch.Tensor) -> None:
    of[0, 0] += 1


def beyond(of: torch.Tensor) -> None:
    """Sums of two classes that no features of its records have, though they add up."""
    of[0, 0] += 2**14 * RECORDS
    of[0, 1] -= 2**14 * RECORDS


FAULTS: dict[str, tuple[Callable[[], Sums], str]] = {
    "of other records": (lambda: sums(records(RECORDS + 1)), "over the 7 examples"),
    "of weight 2": (lambda: sums(records(RECORDS)).times(2), "over the 7 examples"),
    "a negative square": (lambda: changed({0: -1}), "sums of squares"),
    "no Cauchy-Schwarz": (lambda: changed({0: 1}), "sums of squares"),
    "the largest number": (lambda: changed({1: 2**63 - 1}), "of at most 32767 steps"),
    "the smallest number": (lambda: changed({1: -(2**63)}), "of at most 32767 steps"),
    "nobody": (lambda: Sums.nothing(D, CLASSES), "over the 7 examples"),
    "a class below 0": (lambda: changed(targets=moved), "count whole examples"),
    "classes that do not add up": (lambda: changed(targets=shifted), "must add up"),
    "classes of other features": (lambda: changed(targets=beyond), "sums of squares"),
}


@pytest.mark.parametrize(("made", "told"), FAULTS.values(), ids=FAULTS)
def test_whatever_are_sums_over_no_records_is_told(made, told):
    assert told in fault_of(made(), RECORDS)
