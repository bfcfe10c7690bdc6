"""A cluster's head is solved once, and anew as soon as it would be another one."""

import pytest
import torch
from torch import Tensor

from covey.models.ridge_state import ClusterSums
from covey.models.ridge_sums import Sums, solved_head

D, CLASSES = 4, 3


def sums_of(seed: int) -> Sums:
    draw = torch.Generator().manual_seed(seed)
    phi = torch.randint(-1024, 1024, (9, D), generator=draw)
    phi[:, -1] = 1024
    gram = (256 * phi.T @ phi)[torch.ones(D, D, dtype=torch.bool).tril()]
    return Sums(gram, torch.randint(0, 2**18, (D, CLASSES), generator=draw))


def solved(pooling: float = 0.3) -> ClusterSums:
    empty = ClusterSums(pooling=(pooling,) * 3, regularisation=(0.1,) * 3)
    return empty.of((sums_of(0), sums_of(1), sums_of(2)), {"h": (0, 256)})


def fresh(state: ClusterSums, j: int) -> Tensor:
    coefficients = state.pooling[j], state.regularisation[j]
    return solved_head(*state.own_and_others(j), *coefficients).theta


def test_a_head_is_solved_once():
    state = solved()
    assert state.head(1) is state.head(1)
    assert state.of(state.sums, {}).head(1) is state.head(1)  # who counted is all the same


@pytest.mark.parametrize("cluster", [0, 1, 2])
@pytest.mark.parametrize("pooling", [0.0, 0.3, 1.0])
def test_other_sums_or_dials_are_solved_anew(cluster, pooling):
    state = solved(pooling)
    before = state.head(cluster).theta
    sums = (sums_of(7), *state.sums[1:])
    others = state.of(sums, state.counted)
    harder = state.model_copy(update={"regularisation": (5.0,) * 3})
    for each in (others, harder):
        assert not torch.equal(each.head(cluster).theta, before)
        assert torch.equal(each.head(cluster).theta, fresh(each, cluster))
    assert torch.equal(state.head(cluster).theta, before)
