"""What a head would answer without a client is what it answers without it."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.ridge.head import Head, scores_without_client, solved_head
from covey.ridge.state import ClusterSums
from covey.ridge.sums import Rows, feature_grid, sums_of

D, CLASSES, EACH = 7, 3, 5


def rows_of(draw: np.random.Generator, size: int = EACH) -> Rows:
    features = torch.from_numpy(draw.normal(0, 1, (size, D - 1))).float()
    return Rows(feature_grid(features), torch.from_numpy(draw.integers(0, CLASSES, size)))


def heads_of(clusters: list[list[Rows]], pooling: float, regularisation: float) -> ClusterSums:
    sums = tuple(sums_of(rows, D, CLASSES) for rows in clusters)
    return ClusterSums(pooling=pooling, regularisation=regularisation).of(sums, {})


def scores(head: Head, rows: Rows) -> torch.Tensor:
    return rows.features.double() / 1024 @ head.theta


def unit_of(sums: ClusterSums) -> float:
    both = sum(sums.sums[1:], sums.sums[0]).matrices()[0]
    return float(both.diagonal().mean())


@settings(max_examples=40)
@given(st.integers(0, 2**31), st.sampled_from([0.0, 0.25, 1.0]), st.floats(0.01, 3))
def test_without_a_client(seed, pooling, regularisation):
    draw = np.random.default_rng(seed)
    clusters = [[rows_of(draw) for _ in range(4)] for _ in range(2)]
    whole = heads_of(clusters, pooling, regularisation)
    leaver = clusters[0][1]
    others = [[r for r in clusters[0] if r is not leaver], clusters[1]]
    # the same lambda I, though the unit is one of fewer records
    ratio = unit_of(whole) / unit_of(heads_of(others, pooling, regularisation))
    rest = heads_of(others, pooling, regularisation * ratio)
    for j, share in ((0, 1.0), (1, pooling)):
        found = scores_without_client(whole.head(j), leaver, share)
        expected = scores(rest.head(j), leaver).float()
        torch.testing.assert_close(found, expected, rtol=2e-3, atol=2e-3)


def test_one_feature_by_hand():
    """A = 3 + 2, B over the first class: the bias alone, one client for each class."""
    bias = torch.full((5, 1), 1024, dtype=torch.int16)
    one = Rows(bias[:3], torch.tensor([0, 0, 0]))
    other = Rows(bias[3:], torch.tensor([1, 1]))
    sums = ClusterSums().of((sums_of([one, other], 1, 2),), {})
    head = sums.head(0)  # M = 5 + 1 * 5, B = 3 - 5 / 2
    assert head.theta[0].tolist() == pytest.approx([0.5 / 10, -0.5 / 10])
    # without the first client: M = 2 + 5, B = 0 - 2 / 2
    left = scores_without_client(head, one, 1.0)
    assert left[:, 0].tolist() == pytest.approx([-1 / 7] * 3)


@pytest.mark.parametrize(("cluster", "pooling"), [(0, 0.0), (1, 0.3), (2, 1.0)])
def test_a_head_is_solved_anew_as_soon_as_it_would_be_another_one(cluster, pooling):
    draw = np.random.default_rng(0)
    state = heads_of([[rows_of(draw)] for _ in range(3)], pooling, 0.1)
    before = state.head(cluster).theta
    others = state.of((sums_of([rows_of(draw)], D, CLASSES), *state.sums[1:]), {})
    own, *rest = others.sums[cluster], *others.sums[:cluster], *others.sums[cluster + 1 :]
    fresh = solved_head(own, rest[0] + rest[1], pooling, 0.1).theta
    assert not torch.equal(fresh, before)
    assert torch.equal(others.head(cluster).theta, fresh)
    assert state.head(cluster).theta is before
