"""RMIA against the same thing written pair by pair."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.membership.attacks import likelihood_ratio_offline, likelihood_ratio_online, rmia

numbers = st.lists(st.floats(-9, 9), min_size=1, max_size=9).map(np.array)


def test_offline_by_hand():
    # p_out = .2, a = .5: p(x) = (1.5 * .2 + .5) / 2 = .4
    target, references = np.log([0.8]), np.log([[0.9, 0.2, 0.2]])
    inside = np.array([[True, False, False]])
    found = likelihood_ratio_offline(target, references, inside, a=0.5)
    assert np.exp(found) == pytest.approx([0.8 / 0.4])


def test_the_ratios_record_by_record():
    draw = np.random.default_rng(0)
    inside = np.stack([draw.permutation(5) < 2 for _ in range(12)])
    target, references = np.log(draw.random(12)), np.log(draw.random((12, 5)))
    found = np.exp(likelihood_ratio_online(target, references, inside))
    for i in range(12):
        p_in, p_out = (np.exp(references[i][c]).mean() for c in (inside[i], ~inside[i]))
        assert found[i] == pytest.approx(np.exp(target[i]) / ((p_in + p_out) / 2))


def test_certain_models_do_not_overflow():
    target, references = np.array([-900.0, 0.0]), np.full((2, 2), -900.0)
    inside = np.array([[True, False]] * 2)
    found = likelihood_ratio_online(target, references, inside)
    assert found == pytest.approx([0.0, 900.0])


@given(numbers, numbers, st.sampled_from([1.0, 2.0]))
def test_the_score_is_the_share_of_the_population_that_is_beaten(ratios, population, gamma):
    found = rmia(ratios, population, gamma)
    assert ((found >= 0) & (found <= 1)).all()
    for x, score in zip(ratios, found, strict=True):
        beaten = [x - np.log(gamma) >= z for z in population]
        assert score == pytest.approx(np.mean(beaten))
