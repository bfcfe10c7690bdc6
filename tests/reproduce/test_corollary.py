"""Corollary 5 of the first paper, by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey import Streams
from covey_papers.reproduce.corollary import Constants, constants_of, promise
from covey_papers.reproduce.mixtures import MixtureSetting

HAND = Constants(
    clients=4,
    examples=25,
    clusters=2,
    share=0.25,
    smallest=0.5,
    largest=2.0,
    apart=1.0,
    gradient_variance=9.0,
    loss_variance=0.5,
)


def test_rounds_and_error_by_hand():
    # 8 * 2 / (.25 * .5) = 128 rounds per factor e, from 2 Delta = 2 to epsilon = 2 / e^3
    assert HAND.rounds(2 / math.e**3) == pytest.approx(3 * 128)
    assert HAND.rounds(5.0) == 0
    # sigma s L = 3 * 2 * 2 = 12; p^(5/2) = 1/32; lambda^2 = 1/4; sqrt(n B) = 10; log(n B) = 4.605:
    # 12 * 4.605 / (1/32 * 1/4 * 1/2 * 10) = 1414.7
    # eta^2 L^2 s = .5 * 4 * 2 = 4; p^2 lambda^4 delta Delta^4 B = 1/16 * 1/16 * 1/2 * 25: 377.3
    assert HAND.epsilon(0.5) == pytest.approx(1414.7 + 377.3, abs=0.1)


@given(st.floats(1e-6, 2), st.floats(0.05, 0.5))
def test_by_theorem_4_without_a_floor_t_hat_is_enough(epsilon, share):
    """(1 - p lambda / (8 L))^T_hat 2 Delta <= epsilon."""
    found = replace(HAND, share=share)
    shrinks = 1 - share * found.smallest / (8 * found.largest)
    assert shrinks ** found.rounds(epsilon) * 2 * found.apart <= epsilon * (1 + 1e-9)


def test_the_variances_at_the_optima_are_those_of_drawn_examples():
    setting = MixtureSetting(shares=(0.5, 0.5), dimension=3, noise=0.5, condition=4.0)
    found, mixture = constants_of(setting), setting.mixture
    optima = mixture.optima(2, Streams(0))
    drawn = mixture.draw(200_000, optima[0], np.random.default_rng(0))
    x, y = drawn.inputs.double().numpy(), drawn.labels.double().numpy()
    errors = y - x @ optima[1]
    gradients = -errors[:, None] * x
    assert np.var(errors**2 / 2) == pytest.approx(found.loss_variance, rel=0.05)
    assert gradients.var(axis=0).sum() == pytest.approx(found.gradient_variance, rel=0.05)
    assert found.apart == pytest.approx(setting.apart)


def test_a_promise_of_nothing_is_called_that():
    said = promise("two groups", MixtureSetting())
    assert "Corollary 5, two groups: T_hat for an epsilon of Delta / 100 is" in said
    assert said.endswith("it promises nothing here.")
    many = MixtureSetting(shares=(0.5, 0.5), clients=10**9, examples=10**9, condition=1.0)
    assert not promise("many", many).endswith("it promises nothing here.")
