import numpy as np
import pytest

from covey.membership.references import attribution, source_of


def test_the_lowest_loss_owns_the_record():
    losses = np.array([[0.1, 2.0, 0.5], [0.3, 1.0, 0.2]])
    assert source_of(losses).tolist() == [0, 1, 1]


def test_accuracy_beside_the_prior():
    # 3 of 4 right: SE sqrt(.75 * .25 / 4); three of the four belong to source 1
    found = attribution(np.array([0, 1, 1, 0]), np.array([0, 1, 1, 1]))
    assert (found.accuracy, found.prior_accuracy, found.records) == (0.75, 0.75, 4)
    assert found.standard_error == pytest.approx(np.sqrt(0.75 * 0.25 / 4))
