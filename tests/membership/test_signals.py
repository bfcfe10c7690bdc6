import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import log_softmax

from covey import ConfigError
from covey.membership.attacks import check_references, log_complement, logit

moderate = arrays(np.float64, (5, 4), elements=st.floats(-8, 8))
LABELS = np.array([0, 1, 2, 3, 1])


@given(moderate)
def test_the_complement_and_the_logit_are_what_they_say(outputs):
    log_probs = log_softmax(outputs, axis=1)
    probs = np.exp(log_probs)
    p = probs[np.arange(5), LABELS]
    np.testing.assert_allclose(np.exp(log_complement(log_probs)), 1 - probs, rtol=1e-6)
    np.testing.assert_allclose(logit(log_probs, LABELS), np.log(p / (1 - p)), rtol=1e-6, atol=1e-8)


def test_the_logit_stays_exact_where_probabilities_round_to_one():
    # p_y = 1 / (1 + 2 e^-60): 1 - p_y is 0 in floating point, its logit is 60 - log 2
    log_probs = log_softmax(np.array([[60.0, 0.0, 0.0]]), axis=1)
    assert np.exp(log_probs[0, 0]) == 1.0
    expected = 60 - np.log(2)
    assert logit(log_probs, np.array([0]))[0] == pytest.approx(expected)


def test_a_record_without_references_of_a_kind_is_refused():
    check_references(np.array([[True, False]]))
    with pytest.raises(ConfigError, match="inside at least 1 reference"):
        check_references(np.array([[True, False], [False, False]]))
    with pytest.raises(ConfigError, match="outside at least 2 references, found 1"):
        check_references(np.array([[True, True, False]]), least=2)
