"""Sums and heads that somebody sent: those of records pass, to the last bit."""

from collections.abc import Mapping

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from covey.ridge.head import SentHead, scores_without_client, solved_head
from covey.ridge.sums import FEATURE_STEPS, Rows, Sums, fault_of, fault_of_mean, sums_of

D, CLASSES, RECORDS = 5, 3, 7


def records(size: int, seed: int = 0) -> Rows:
    draw = np.random.default_rng(seed)
    scale = draw.choice([1, 100, 2**15 - 1])
    steps = draw.integers(-scale, scale, (size, D), endpoint=True)
    steps[:, -1] = FEATURE_STEPS
    labels = torch.from_numpy(draw.integers(0, CLASSES, size))
    return Rows(torch.from_numpy(steps.astype(np.int16)), labels)


def sums(rows: Rows) -> Sums:
    return sums_of([rows], D, CLASSES)


@given(st.integers(1, 40), st.integers(0, 2**31))
def test_whatever_are_sums_over_records_passes(size, seed):
    rows = records(size, seed)
    assert fault_of(sums(rows), size) == fault_of(sums(rows)) == ""
    assert fault_of_mean(rows.features.double().mean(dim=0)) == ""


def changed(gram: Mapping[int, int] = {}, targets: Mapping[tuple[int, int], int] = {}) -> Sums:
    """Return honest sums, but for these numbers, and with so much more in those."""
    honest = sums(records(RECORDS))
    for at, value in gram.items():
        honest.gram[at] = value
    for at, more in targets.items():
        honest.targets[at] += more
    return honest


# one record of another class, for the bias alone
MOVED = {(-1, 0): FEATURE_STEPS, (-1, 1): -FEATURE_STEPS * (RECORDS + 1)}
# sums of two classes that no features of its records have, though they add up
BEYOND = {(0, 0): 2**14 * RECORDS, (0, 1): -(2**14) * RECORDS}
FAULTS: dict[str, tuple[Sums, str]] = {
    "of other records": (sums(records(RECORDS + 1)), "over the 7 examples"),
    "twice its records": (sums(records(RECORDS)) + sums(records(RECORDS)), "over the 7 examples"),
    "nobody": (Sums.nothing(D, CLASSES), "over the 7 examples"),
    "a negative square": (changed({0: -1}), "sums of squares"),
    "no Cauchy-Schwarz": (changed({0: 1}), "sums of squares"),
    "the largest number": (changed({1: 2**63 - 1}), "of at most 32767 steps"),
    "the smallest number": (changed({1: -(2**63)}), "of at most 32767 steps"),
    "a class below 0": (changed(targets=MOVED), "count whole examples"),
    "classes that do not add up": (changed(targets={(0, 0): 1}), "must add up"),
    "classes of other features": (changed(targets=BEYOND), "sums of squares"),
}


@pytest.mark.parametrize(("made", "reason"), FAULTS.values(), ids=FAULTS)
def test_whatever_are_sums_over_no_records_is_refused(made, reason):
    assert reason in fault_of(made, RECORDS)


WIDTH, LABELS = 130, 7


def rows(seed: int) -> Rows:
    draw = torch.Generator().manual_seed(seed)
    features = torch.randint(-3000, 3000, (40, WIDTH), generator=draw).to(torch.int16)
    features[:, -1] = 2**10
    labels = torch.randint(0, LABELS, (40,), generator=draw)
    return Rows(features, labels)


@pytest.mark.parametrize("share", [1.0, 0.3, 0.0])
def test_scores_without_a_client_are_the_same_bits_from_either(share):
    own = rows(0)
    sums = sums_of([own, rows(1)], WIDTH, LABELS)
    head = solved_head(sums, Sums.nothing(WIDTH, LABELS), 0.0, 0.3)
    sent = SentHead.of(head.params, head.root.contiguous() if share else None)
    here = scores_without_client(head, own, share)
    assert torch.equal(here, scores_without_client(sent, own, share))
    assert torch.equal(sent.theta, head.theta.float())
