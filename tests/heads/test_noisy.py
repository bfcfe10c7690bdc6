"""Bounded sums and one noisy release: sensitivity, distribution, what is solved."""

import math
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from covey import Streams
from covey.models.ridge_state import SumNoise, noisy_head
from covey.models.ridge_sums import (
    CLIENT_STEPS,
    FEATURE_STEPS,
    MAX_NORM,
    WEIGHT_STEPS,
    Rows,
    Sums,
    bounded_records,
    sums_of,
    target_norm,
)

CLASSES = 3


@st.composite
def clients(draw: st.DrawFn, most: int = 40) -> Rows:
    """Records of any size, whole ones of the grid, often alike."""
    n, d = draw(st.integers(1, most)), draw(st.integers(2, 6))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    size = draw(st.sampled_from([1, 30, 1000, 32_767]))
    features = generator.integers(-size, size + 1, (n, d))
    if draw(st.booleans()):
        features[:] = features[0]
    features[:, -1] = FEATURE_STEPS
    labels = generator.integers(0, draw(st.integers(1, CLASSES)), n)
    weight = draw(st.sampled_from([1, 100, 256]))
    return Rows(torch.from_numpy(features.astype(np.int16)), torch.from_numpy(labels), weight)


def norm_of(sums: Sums) -> float:
    """|(svec(A) / R^2, B / (R |t|))| / sqrt(2), from the matrices themselves."""
    gram, targets = sums.matrices()
    off = math.sqrt(2) * gram[np.tril_indices(len(gram), -1)]
    half = torch.cat([gram.diagonal(), off]) / MAX_NORM**2
    rest = targets.flatten() / MAX_NORM / target_norm(CLASSES)
    return float(torch.cat([half, rest]).norm()) / math.sqrt(2)


def sums(rows: Rows) -> Sums:
    return sums_of([rows], rows.features.shape[1], CLASSES)


@given(clients(), st.sampled_from([0.05, 0.3, 1.0, 3.0]))
def test_no_client_adds_more_than_the_noise_counts_on(rows, clip):
    bounded = SumNoise(clip, 1.0).bounded(rows, CLASSES)
    most = CLIENT_STEPS / WEIGHT_STEPS
    assert norm_of(sums(bounded)) <= most * rows.weight / WEIGHT_STEPS
    assert (bounded.features[:, -1] == FEATURE_STEPS).all()


@given(clients())
def test_only_long_records_are_shortened(rows):
    bounded = bounded_records(rows).features.double() / FEATURE_STEPS
    before = rows.features.double() / FEATURE_STEPS
    long = before.norm(dim=1) > MAX_NORM
    assert torch.equal(bounded[~long], before[~long])
    assert (bounded.norm(dim=1) <= MAX_NORM).all()
    shrunk = before[long, :-1] * (
        math.sqrt(MAX_NORM**2 - 1) / before[long, :-1].norm(dim=1, keepdim=True)
    )
    assert float((bounded[long, :-1] - shrunk).abs().amax() if long.any() else 0) < 0.01


def test_noise_is_white_where_sensitivity_is_measured():
    """In coordinates in which a client adds at most 1 it is N(0, z^2), and symmetric."""
    d, z = 60, 1.5
    noise = SumNoise(0.3, z)
    most = CLIENT_STEPS / WEIGHT_STEPS
    nothing = Sums.nothing(d, CLASSES)
    streams = Streams(0, secret=7)
    released = [noise.released(nothing, streams.at(i).draws()) for i in range(30)]
    grams, targets = zip(*(each.matrices() for each in released), strict=True)
    diagonal = torch.cat([g.diagonal() for g in grams])
    beside = torch.cat([g[np.tril_indices(d, -1)] for g in grams])
    on_targets = torch.cat([t.flatten() for t in targets])
    unit_of_a = math.sqrt(2) * MAX_NORM**2 * most
    unit_of_b = math.sqrt(2) * MAX_NORM * target_norm(CLASSES) * most
    assert float(diagonal.std()) / unit_of_a == pytest.approx(z, rel=0.05)
    assert float(beside.std()) * math.sqrt(2) / unit_of_a == pytest.approx(z, rel=0.02)
    free = math.sqrt(1 - 1 / CLASSES)  # targets add up to 0, and so does their noise
    assert float(on_targets.std()) / free / unit_of_b == pytest.approx(z, rel=0.05)
    step = z * unit_of_b / 16
    assert float(targets[0].sum(dim=1).abs().max()) < 1e-4 + CLASSES / 2 * step
    together = torch.stack([g[-1, :-1] for g in grams]).flatten()
    of_targets = torch.stack([t[:-1, 0] for t in targets]).flatten()
    correlation = np.corrcoef(together, of_targets)[0, 1]
    assert abs(correlation) < 0.1  # though B is centred by a row of A


def test_secret_noise_on_sums_ends_on_one_grid():
    """Sums that differ by a single step are released as the same few values."""
    d, noise = 20, SumNoise(1.0, 2.0**-4)
    nothing = Sums.nothing(d, CLASSES)
    one = Sums(nothing.gram + 1, nothing.targets + 1)
    # deviations: 2^8 * 2^24, and 1.15 * 2^8 * 2^12; a step is 1/16 of 2^32 and of 2^20
    for sums, i in product((nothing, one), range(20)):
        released = noise.released(sums, Streams(0, ("sums", i), secret=7).draws())
        assert int((released.gram % 2**28).abs().max()) == 0
        assert int((released.targets % 2**16).abs().max()) == 0
        seeded = noise.released(sums, Streams(0, ("sums", i)).draws())
        assert int((seeded.gram % 2**28 != 0).sum()) == d * (d + 1) // 2


def test_a_noisy_head_by_hand():
    """Negative eigenvalues count as 0; what is added is a multiple of the noise alone."""
    d = 5
    noise = SumNoise(0.3, 1.0)
    released = noise.released(Sums.nothing(d, CLASSES), np.random.default_rng(1))
    gram, targets = released.matrices()
    values, basis = np.linalg.eigh(gram.numpy())
    assert values.min() < 0
    positive = basis @ np.diag(values.clip(0)) @ basis.T
    expected = np.linalg.solve(positive + 0.5 * 70 * np.eye(d), targets.numpy())
    head = noisy_head(released, Sums.nothing(d, CLASSES), 0.0, 0.5, 70.0)
    np.testing.assert_allclose(head.theta, expected, rtol=1e-9)
    np.testing.assert_allclose(
        head.lower @ head.lower.T, positive + 35 * np.eye(d), rtol=1e-9, atol=1e-9
    )
