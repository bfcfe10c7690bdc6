"""What a head would answer without a record or a client is what it answers without it."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.heads import (
    ClusterSums,
    Head,
    LeftOut,
    Rows,
    Sums,
    feature_grid,
    joined,
    left_out_along,
    likelihood_ratio_successes,
    scores_without_client,
    scores_without_records,
    solved_head,
    sums_of,
)

D, CLASSES, EACH = 7, 3, 5


def rows_of(draw: np.random.Generator, size: int = EACH, weight: int = 256) -> Rows:
    features = torch.from_numpy(draw.normal(0, 1, (size, D - 1))).float()
    return Rows(
        feature_grid(features),
        torch.from_numpy(draw.integers(0, CLASSES, size)),
        weight,
    )


def heads_of(
    clusters: list[list[Rows]], pooling: float, regularisation: float
) -> ClusterSums:
    sums = tuple(sums_of(rows, D, CLASSES) for rows in clusters)
    n = len(clusters)
    blank = ClusterSums(pooling=(pooling,) * n, regularisation=(regularisation,) * n)
    return blank.of(sums, {})


def scores(head: Head, rows: Rows) -> torch.Tensor:
    return rows.features.double() / 1024 @ head.theta


def unit_of(sums: ClusterSums) -> float:
    both = sum(sums.sums[1:], sums.sums[0]).matrices()[0]
    return float(both.diagonal().mean())


@settings(max_examples=40)
@given(
    st.integers(0, 2**31),
    st.sampled_from([0.0, 0.25, 1.0]),
    st.floats(0.01, 3),
    st.sampled_from([64, 256]),
)
def test_without_a_client(
    seed: int, pooling: float, regularisation: float, weight: int
):
    draw = np.random.default_rng(seed)
    clusters = [[rows_of(draw, weight=weight) for _ in range(4)] for _ in range(2)]
    whole = heads_of(clusters, pooling, regularisation)
    leaver = clusters[0][1]
    rest = heads_of(
        [[r for r in clusters[0] if r is not leaver], clusters[1]],
        pooling,
        # the same lambda I, though the unit is one of fewer records
        regularisation,
    )
    ratio = unit_of(whole) / unit_of(rest)
    rest = rest.model_copy(
        update={"regularisation": (regularisation * ratio,) * len(rest.gram)}
    )
    for j, share in ((0, 1.0), (1, pooling)):
        found = scores_without_client(whole.head(j), leaver, share)
        expected = scores(rest.head(j), leaver).float()
        torch.testing.assert_close(found, expected, rtol=2e-3, atol=2e-3)


@settings(max_examples=40)
@given(st.integers(0, 2**31), st.floats(0.01, 3), st.sampled_from([64, 256]))
def test_without_each_record(seed: int, regularisation: float, weight: int):
    draw = np.random.default_rng(seed)
    clients = [rows_of(draw, weight=weight) for _ in range(3)]
    whole = heads_of([clients], 0.0, regularisation)
    found = scores_without_records(whole.head(0), clients[0])
    for r in range(EACH):
        kept = [i for i in range(EACH) if i != r]
        less = Rows(clients[0].features[kept], clients[0].labels[kept], weight)
        rest = heads_of([[less, *clients[1:]]], 0.0, regularisation)
        ratio = unit_of(whole) / unit_of(rest)
        rest = rest.model_copy(
            update={"regularisation": (regularisation * ratio,) * len(rest.gram)}
        )
        expected = scores(rest.head(0), clients[0])[r].float()
        torch.testing.assert_close(found.without[r], expected, rtol=2e-3, atol=2e-3)
    assert bool(((found.leverages >= 0) & (found.leverages < 1)).all())


@pytest.mark.parametrize("d", [1, 7, 37])
def test_the_root_is_that_of_the_inverse_and_is_multiplied_as_a_whole(d: int):
    draw = np.random.default_rng(d)
    features = feature_grid(torch.from_numpy(draw.normal(0, 1, (60, d - 1))).float())
    labels = torch.from_numpy(draw.integers(0, CLASSES, 60))
    rows = Rows(features, labels)
    sums = sums_of([rows], d, CLASSES)
    head = solved_head(sums, Sums.nothing(d, CLASSES), 0.0, 0.1)
    inverse = torch.linalg.inv(head.lower @ head.lower.T).float()
    assert torch.equal(head.root, head.root.triu())
    torch.testing.assert_close(head.root @ head.root.T, inverse, rtol=1e-4, atol=1e-6)
    phi = features.double() / 1024
    leverages = (phi @ inverse.double() * phi).sum(dim=1).float()
    found = scores_without_records(head, rows).leverages
    torch.testing.assert_close(found, leverages, rtol=1e-4, atol=1e-6)


def test_a_client_that_never_came_is_answered_as_everybody():
    draw = np.random.default_rng(0)
    stranger = rows_of(draw)
    head = heads_of([[rows_of(draw)]], 0.0, 1.0).head(0)
    found = scores_without_client(head, stranger, 0.0)
    torch.testing.assert_close(found, scores(head, stranger).float())


def test_one_feature_by_hand():
    """A = 4 + 1, B over the first class: the bias alone, five records, three of class 0."""
    one = Rows(
        torch.full((5, 1), 1024, dtype=torch.int16), torch.tensor([0, 0, 0, 1, 1])
    )
    sums = ClusterSums(pooling=(0.0,), regularisation=(1.0,)).of(
        (sums_of([one], 1, 2),), {}
    )
    head = sums.head(0)  # M = 5 + 1 * 5, B = 3 - 5 / 2
    assert head.theta[0].tolist() == pytest.approx([0.5 / 10, -0.5 / 10])
    left = scores_without_records(head, one)
    assert left.leverages.tolist() == pytest.approx([0.1] * 5)
    # without the first record: M = 9, B = 2 - 4 / 2
    assert float(left.without[0, 0]) == pytest.approx(0.0, abs=1e-6)


def test_who_knows_how_data_are_drawn_succeeds_as_often_as_the_likelihood_ratio_says():
    """A Gaussian world: the optimal test's success over redrawn others."""
    draw = np.random.default_rng(1)
    n, d, draws, noise = 60, 4, 4_000, 0.5
    design = draw.normal(0, 1, (n, d))
    truth = draw.normal(0, 1, d)
    penalty = 5.0 * np.eye(d)
    system = design.T @ design + penalty
    record = design[0]
    own = float(record @ truth) + 2 * noise  # its label is far from what others say
    others = np.linalg.inv(system - np.outer(record, record))
    inside, outside = np.linalg.inv(system), others
    noises = draw.normal(0, noise, (draws, n))
    labels = design @ truth + noises
    rest = labels[:, 1:] @ design[1:]
    out_scores = rest @ outside @ record
    in_scores = (rest + own * record) @ inside @ record
    middle = (in_scores.mean() + out_scores.mean()) / 2
    side = np.sign(in_scores.mean() - out_scores.mean())
    right = (
        (side * (in_scores - middle) > 0).mean()
        + (side * (out_scores - middle) <= 0).mean()
    ) / 2
    leverage = float(record @ inside @ record)
    error = own - out_scores.mean()
    spread = float(record @ inside @ design.T @ design @ inside @ record)
    distance = leverage * abs(error) / (noise * math.sqrt(spread))
    assert right == pytest.approx(
        0.5 * (1 + math.erf(distance / 2 / math.sqrt(2))), abs=0.02
    )


def test_the_success_is_that_of_two_normals_as_far_apart():
    """h = .1, e = 2, S = 1 (+-1 alike), v = .04: d = .1 * 2 / .2 = 1."""
    errors = torch.tensor([[2.0], [-2.0]])
    found = LeftOut(
        scores=torch.zeros(2, 1),
        without=torch.zeros(2, 1),
        targets=errors,
        leverages=torch.tensor([0.1, 0.1]),
        variances=torch.tensor([0.01, 0.01]),
    )
    # S = 4, so e^T S^-1 e = 1, and d = .1 * 1 / .1 = 1
    expected = 0.5 * (1 + math.erf(0.5 / math.sqrt(2)))
    assert likelihood_ratio_successes(found).tolist() == pytest.approx([expected] * 2)


def mean_success(records: int, regularisation: float) -> float:
    rows = rows_of(np.random.default_rng(2), size=records)
    head = heads_of([[rows]], 0.0, regularisation).head(0)
    return float(likelihood_ratio_successes(scores_without_records(head, rows)).mean())


def test_others_hide_a_record_and_regularisation_alone_does_not():
    """However small the scores become, they are the others' sum and the record's share."""
    by_records = [mean_success(n, 1.0) for n in (30, 300, 3_000)]
    assert by_records == sorted(by_records, reverse=True)
    assert by_records[-1] < 0.52
    by_regularisation = [mean_success(30, each) for each in (0.1, 1.0, 10.0, 1e4, 1e6)]
    assert by_regularisation == sorted(by_regularisation, reverse=True)
    assert by_regularisation[-1] == pytest.approx(by_regularisation[-2], abs=1e-3)
    assert by_regularisation[-1] > 0.55


def test_everybodys_sums_are_those_of_all_clusters():
    draw = np.random.default_rng(3)
    clusters = [[rows_of(draw) for _ in range(2)] for _ in range(2)]
    together = heads_of([clusters[0] + clusters[1]], 0.0, 0.5).head(0)
    for j in range(2):
        pooled = heads_of(clusters, 1.0, 0.5).head(j)
        assert torch.equal(pooled.theta, together.theta)
    assert Sums.nothing(D, CLASSES).digest() == sums_of([], D, CLASSES).digest()


@pytest.mark.parametrize("pooling", [0.0, 0.3, 1.0])
def test_one_decomposition_serves_all_regularisations(pooling: float):
    draw = np.random.default_rng(4)
    own, rest = [rows_of(draw, weight=w) for w in (256, 64)], [rows_of(draw, 9)]
    sums = sums_of(own, D, CLASSES), sums_of(rest, D, CLASSES)
    lambdas = (0.1, 1.0, 10.0)
    found = left_out_along(*sums, pooling, lambdas, own)
    for regularisation, left in zip(lambdas, found, strict=True):
        head = solved_head(*sums, pooling, regularisation)
        expected = joined([scores_without_records(head, each) for each in own])
        for name in ("scores", "without", "leverages", "variances"):
            torch.testing.assert_close(
                getattr(left, name), getattr(expected, name), rtol=1e-3, atol=1e-4
            )
