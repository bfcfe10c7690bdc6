"""Sums over clients are exact, and what a head answers without a client follows from them."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from covey import ModelError
from covey.ridge.head import ClusterSums, Head, scores_without_client, solved_head
from covey.ridge.sums import FEATURE_STEPS, Rows, Sums, feature_grid, sums_of

D, CLASSES = 5, 3
CLIENTS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 2**31)), min_size=1)


def client(size: int, seed: int) -> Rows:
    draw = np.random.default_rng(seed)
    features = torch.from_numpy(draw.normal(0, 5, (size, D - 1))).float()
    labels = torch.from_numpy(draw.integers(0, CLASSES, size))
    return Rows(feature_grid(torch.cat([features, torch.ones(1, D - 1)]))[:-1], labels)


def total(rows: list[Rows]) -> Sums:
    return sums_of(rows, D, CLASSES)


@given(CLIENTS, st.randoms(use_true_random=False))
def test_sums_do_not_hang_on_who_came_first_or_together(drawn, random):
    rows = [client(*row) for row in drawn]
    shuffled = random.sample(rows, len(rows))
    one_by_one = sum((total([client_rows]) for client_rows in shuffled), Sums.nothing(D, CLASSES))
    assert total(rows) == total(shuffled) == one_by_one
    assert total(rows).digest() == one_by_one.digest()


@given(CLIENTS, st.data())
def test_who_is_taken_off_was_never_there(drawn, data):
    rows = [client(*row) for row in drawn]
    gone = data.draw(st.sets(st.integers(0, len(rows) - 1)))
    left = total(rows)
    for i in gone:
        left -= total([rows[i]])
    assert left == total([row for i, row in enumerate(rows) if i not in gone])


@given(CLIENTS)
def test_the_matrices_are_the_sums_of_products(drawn):
    rows = [client(*row) for row in drawn]
    gram, targets = total(rows).matrices()
    phis = [row.features.double() / FEATURE_STEPS for row in rows]
    expected: Tensor = sum(  # type: ignore[assignment]
        (phi.T @ phi for phi in phis), torch.zeros(D, D, dtype=torch.float64)
    )
    onehot = [torch.nn.functional.one_hot(row.labels, CLASSES) for row in rows]
    wanted: Tensor = sum(  # type: ignore[assignment]
        (phi.T @ (ones.double() - 1 / CLASSES) for phi, ones in zip(phis, onehot, strict=True)),
        torch.zeros(D, CLASSES, dtype=torch.float64),
    )
    torch.testing.assert_close(gram, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(targets, wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("d", [1, 8, 37])
def test_blocks_leave_out_nothing_of_the_lower_half(d):
    draw = np.random.default_rng(d)
    features = torch.from_numpy(draw.integers(-(2**15) + 1, 2**15, (20, d)))
    labels = torch.from_numpy(draw.integers(0, CLASSES, 20))
    block_sums = sums_of([Rows(features.to(torch.int16), labels)], d, CLASSES)
    whole = features.T @ features
    assert block_sums.gram.tolist() == whole[torch.ones(d, d).tril().bool()].tolist()


def test_sums_that_float64_would_round_are_refused():
    rows = Rows(torch.full((2**20, 2), 2**15 - 1, dtype=torch.int16), torch.zeros(2**20).long())
    with pytest.raises(ModelError, match="below 2\\^53 steps"):
        sums_of([rows] * 9, 2, CLASSES)
    most = sums_of([rows] * 4, 2, CLASSES)
    with pytest.raises(ModelError, match="below 2\\^53 steps"):
        _ = most + most + most


@pytest.mark.parametrize("feature", [1e-4, float("nan"), float("inf")])
def test_features_that_do_not_fit_the_grid_are_refused(feature):
    with pytest.raises(ModelError):
        feature_grid(torch.full((2, 3), feature))
    # the bias is one, and large features are cut
    rounded = feature_grid(torch.tensor([[0.5, -100.0, 100.0]]))
    assert rounded.tolist() == [[512, -32767, 32767, 1024]]


WIDTH, LABELS, ROWS_PER_CLIENT = 7, 3, 5


def rows_of(draw: np.random.Generator, size: int = ROWS_PER_CLIENT) -> Rows:
    features = torch.from_numpy(draw.normal(0, 1, (size, WIDTH - 1))).float()
    return Rows(feature_grid(features), torch.from_numpy(draw.integers(0, LABELS, size)))


def heads_of(clusters: list[list[Rows]], pooling: float, regularisation: float) -> ClusterSums:
    sums = tuple(sums_of(rows, WIDTH, LABELS) for rows in clusters)
    return ClusterSums(pooling=pooling, regularisation=regularisation).of(sums, {})


def scores(head: Head, rows: Rows) -> torch.Tensor:
    return rows.features.double() / 1024 @ head.theta


def unit_of(sums: ClusterSums) -> float:
    both = sum(sums.sums[1:], sums.sums[0]).matrices()[0]
    return float(both.diagonal().mean())


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
        without = scores_without_client(whole.head(j), leaver, share)
        expected = scores(rest.head(j), leaver).float()
        torch.testing.assert_close(without, expected, rtol=2e-3, atol=2e-3)


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
    others = state.of((sums_of([rows_of(draw)], WIDTH, LABELS), *state.sums[1:]), {})
    own, *rest = others.sums[cluster], *others.sums[:cluster], *others.sums[cluster + 1 :]
    fresh = solved_head(own, rest[0] + rest[1], pooling, 0.1).theta
    assert not torch.equal(fresh, before)
    assert torch.equal(others.head(cluster).theta, fresh)
    assert state.head(cluster).theta is before
