"""Shapes are checked in the command that promises it, and in no other."""

import numpy as np
import pytest
from jaxtyping import TypeCheckError

from covey.base.metrics import ByModel


def test_groups_that_disagree_are_refused_where_shapes_are_checked(pytestconfig):
    models_of_two_groups = np.zeros((2, 4, 3, 3), dtype=np.int64)
    clients_of_five = np.zeros((5, 4), dtype=np.int64)
    if pytestconfig.getoption("jaxtyping_packages"):
        with pytest.raises(TypeCheckError):
            ByModel(models_of_two_groups, clients_of_five)
    else:
        assert ByModel(models_of_two_groups, clients_of_five).clients.shape == (5, 4)
