"""Heads under objective perturbation: the best attacker's success, its bound, the dial."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from covey.dp.accountant import gaussian_epsilon
from covey.models.ridge_noise import HeadNoise, Hidden
from covey.models.ridge_sums import FEATURE_STEPS, MAX_NORM, WEIGHT_STEPS, Rows, sums_of

D, CLASSES = 4, 3
NOISE = HeadNoise(clip=1.4, multiplier=0.6, regularisation=3.0, classes=CLASSES)
REST = math.sqrt(MAX_NORM**2 - 1)
EXACTLY = 2e-3
"""What a Sobol sequence of 4,096 points leaves open."""


def rows_of(seed: int, size: int, weight: int = WEIGHT_STEPS) -> Rows:
    """Records with features of norm 1, in units of the bound, up to the grid."""
    draw = np.random.default_rng(seed)
    features = draw.normal(0, 1, (size, D))
    features[:, -1] = 0
    features *= REST / np.linalg.norm(features, axis=1, keepdims=True)
    features[:, -1] = 1  # the bias
    steps = torch.from_numpy((features * FEATURE_STEPS).astype(np.int16))
    return Rows(steps, torch.from_numpy(draw.integers(0, CLASSES, size)), weight)


class Release:
    """The distribution of a head, from A and B in numpy: an oracle without algebra."""

    def __init__(self, rows: Rows, weights: np.ndarray) -> None:
        phi = rows.features.double().numpy() / (FEATURE_STEPS * MAX_NORM)
        t = np.eye(CLASSES)[rows.labels.numpy()] - 1 / CLASSES
        ones = np.eye(CLASSES) - 1 / CLASSES
        values, basis = np.linalg.eigh(ones)
        self.basis = basis[:, values > 0.5]  # of the directions that add up to 0
        self.root = phi.T @ (phi * weights[:, None])
        self.root += NOISE.regularisation * np.eye(D)
        self.targets = phi.T @ (t * weights[:, None]) @ self.basis
        self.sigma = NOISE.clip * NOISE.multiplier

    def draw(self, generator: np.random.Generator, draws: int) -> np.ndarray:
        xi = self.sigma * generator.standard_normal((draws, D, CLASSES - 1))
        return np.linalg.solve(self.root, self.targets + xi)

    def log_density(self, theta: np.ndarray) -> np.ndarray:
        xi = self.root @ theta - self.targets
        _, determinant = np.linalg.slogdet(self.root)
        squares = (xi**2).sum(axis=(1, 2)) / (2 * self.sigma**2)
        return (CLASSES - 1) * determinant - squares


def told_apart(rows: Rows, there: np.ndarray, absent: np.ndarray, epsilon: float = 0.0):
    """Return delta at epsilon between two sets of weights, with its standard error."""
    one, other = Release(rows, there), Release(rows, absent)
    theta = other.draw(np.random.default_rng(1), 50_000)
    ratio = one.log_density(theta) - other.log_density(theta)
    excess = np.maximum(0, np.exp(ratio) - math.exp(epsilon))
    return excess.mean(), excess.std() / math.sqrt(len(theta))


@pytest.mark.parametrize(("seed", "size"), [(0, 1), (1, 6), (2, 30)])
def test_the_success_is_that_of_densities_of_heads_with_and_without(seed, size):
    rows = rows_of(seed, size)
    (hidden,) = NOISE.hidden(sums_of([rows], D, CLASSES), [rows])
    everybody = np.ones(size)
    without = everybody - np.eye(size)[0]
    tv, error = told_apart(rows, everybody, without)
    found = hidden.successes()[0]
    assert found == pytest.approx(0.5 + 0.5 * tv, abs=4 * error + EXACTLY)


@settings(max_examples=40)
@given(
    st.floats(0.01, 1),
    st.floats(0.3, 3),
    st.floats(0.5, 40),
    st.integers(2, 12),
    st.tuples(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1)),
)
def test_no_geometry_is_worse_than_the_bound(w, z, lam, classes, geometry):
    r, kernel, length = geometry
    noise = HeadNoise(1.0, z, lam, classes)
    g = kernel / lam
    hidden = Hidden(
        noise,
        weights=np.array([w]),
        residuals=np.array([r]),
        kernels=np.array([g]),
        lengths=np.array([math.sqrt(g * g + length * (g / lam - g * g))]),
    )
    assert hidden.successes()[0] <= noise.success(w) + EXACTLY


@pytest.mark.parametrize(
    ("kind", "size", "epsilon"), [("alike", 4, 0.0), ("apart", 4, 0.5), ("mixed", 20, 1.5)]
)
def test_no_client_is_told_better_than_its_records_were_one(kind, size, epsilon):
    """Two records of a client, alike or at right angles, beside others or alone."""
    rows = rows_of(7, size)
    features = rows.features.clone()
    if kind == "alike":
        features[1] = features[0]
    if kind == "apart":
        features[:2, :-1] = 0
        features[0, 0] = features[1, 1] = int(REST * FEATURE_STEPS)
    labels = rows.labels.clone()
    labels[1] = labels[0]
    rows = Rows(features, labels, rows.weight)
    weights = np.full(size, 0.4) if kind == "mixed" else np.zeros(size)
    weights[:2] = 0.4
    gone = weights.copy()
    gone[:2] = 0
    bound = NOISE.delta(epsilon, 0.8)
    for there, absent in ((weights, gone), (gone, weights)):
        delta, error = told_apart(rows, there, absent, epsilon)
        assert delta <= bound + 3 * error


@given(st.floats(0.5, 0.99), st.integers(1, 9))
def test_a_weight_is_the_largest_at_which_nobody_does_better(accepted, releases):
    steps = NOISE.weight_for(accepted, releases)
    assert NOISE.success(steps / WEIGHT_STEPS, releases) <= accepted
    if steps < WEIGHT_STEPS:
        assert NOISE.success((steps + 1) / WEIGHT_STEPS, releases) > accepted


@given(st.floats(0.05, 1), st.integers(1, 5))
def test_several_heads_tell_more_and_never_less_than_one_gaussian(weight, releases):
    mu = math.sqrt(releases) * weight / NOISE.multiplier
    assert NOISE.success(weight, releases) >= ndtr(mu / 2) - 1e-12
    assert NOISE.success(weight, releases + 1) > NOISE.success(weight, releases)


@given(st.floats(1e-7, 1e-2), st.floats(0.02, 1))
def test_who_is_replaced_by_its_opposite_moves_a_head_twice_as_far(delta, weight):
    opposite = gaussian_epsilon(2 * weight / NOISE.multiplier, delta)
    assert NOISE.epsilon_replaced(delta, weight) >= opposite - 1e-6


def test_a_head_is_what_the_system_gives_with_its_noise():
    rows = rows_of(3, 20)
    drawn = np.random.default_rng(2).standard_normal((D, CLASSES))
    theta = NOISE.head(sums_of([rows], D, CLASSES), drawn).numpy() * MAX_NORM
    release = Release(rows, np.ones(20))
    xi = (release.root @ theta) @ release.basis - release.targets
    xi /= NOISE.clip * NOISE.multiplier
    assert xi == pytest.approx(drawn @ release.basis, abs=1e-4)
    assert theta.sum(axis=1) == pytest.approx(0, abs=1e-5)
