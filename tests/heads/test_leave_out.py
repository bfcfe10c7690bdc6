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
    error_precision,
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
    """Errors of two classes are +-(e, -e): each is as long as they all are, 1."""
    errors = torch.tensor([[2.0, -2.0], [-2.0, 2.0]])
    found = LeftOut(
        scores=torch.zeros(2, 2),
        without=torch.zeros(2, 2),
        targets=errors,
        leverages=torch.tensor([0.1, 0.1]),
        variances=torch.tensor([0.01, 0.01]),
    )
    # e^T S^-1 e = 1, and d = .1 * 1 / .1 = 1
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
    assert by_regularisation == pytest.approx([0.622] * 5, abs=0.004)
    assert by_regularisation[-1] == pytest.approx(by_regularisation[-2], abs=1e-5)


def success_in_other_words(rows: Rows, regularisation: float) -> float:
    """Solve a head without each record in turn, in numpy; the last class is 1 - others."""
    phi = rows.features.numpy().astype(np.float64) / 1024
    n, d = phi.shape
    targets = np.eye(CLASSES)[rows.labels.numpy()] - 1 / CLASSES
    gram, sums = phi.T @ phi, phi.T @ targets
    system = gram + regularisation * np.diag(gram).mean() * np.eye(d)
    solved = np.linalg.solve(system, phi.T).T
    leverages = (solved * phi).sum(axis=1)
    spread = ((solved @ gram) * solved).sum(axis=1)
    errors = np.empty((n, CLASSES - 1))
    for r, (own, target) in enumerate(zip(phi, targets, strict=True)):
        rest = system - np.outer(own, own), sums - np.outer(own, target)
        errors[r] = (target - own @ np.linalg.solve(*rest))[:-1]
    along = np.linalg.solve(errors.T @ errors / n, errors.T).T
    lengths = (errors * along).sum(axis=1)
    assert lengths.mean() == pytest.approx(CLASSES - 1)
    distances = leverages * np.sqrt(lengths / spread)
    return float(np.mean([math.erf(each / 8**0.5) for each in distances]) / 2 + 0.5)


@pytest.mark.parametrize(
    ("records", "regularisation"), [(30, 0.1), (30, 1e6), (300, 1)]
)
def test_the_success_is_that_of_heads_that_are_solved_without_each_record(
    records: int, regularisation: float
):
    rows = rows_of(np.random.default_rng(2), size=records)
    assert mean_success(records, regularisation) == pytest.approx(
        success_in_other_words(rows, regularisation), abs=1e-4
    )


@settings(max_examples=40)
@given(st.integers(0, 2**31), st.integers(2, 12), st.floats(-3, 6))
def test_errors_are_on_average_as_long_as_they_have_directions(
    seed: int, classes: int, power: float
):
    """They add up to 0 over classes, so the mean of e^T S^-1 e is C - 1."""
    draw = np.random.default_rng(seed)
    features = torch.from_numpy(draw.normal(0, 1, (20 * classes, D - 1))).float()
    labels = torch.arange(20 * classes) % classes
    rows = Rows(feature_grid(features), labels)
    sums = sums_of([rows], D, classes)
    head = solved_head(sums, Sums.nothing(D, classes), 0.0, 10**power)
    found = scores_without_records(head, rows)
    errors = (found.targets - found.without).double()
    lengths = ((errors @ error_precision(found)) * errors).sum(dim=1)
    assert float(lengths.mean()) == pytest.approx(classes - 1, rel=1e-6)


def test_a_class_that_nobody_has_is_no_direction():
    """All classes without records are answered alike: one direction for all of them."""
    rows = rows_of(np.random.default_rng(2), size=60)
    sums = sums_of([rows], D, CLASSES + 3)
    head = solved_head(sums, Sums.nothing(D, CLASSES + 3), 0.0, 1.0)
    found = scores_without_records(head, rows)
    errors = (found.targets - found.without).double()
    lengths = ((errors @ error_precision(found)) * errors).sum(dim=1)
    assert float(lengths.mean()) == pytest.approx(CLASSES, rel=1e-6)


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
