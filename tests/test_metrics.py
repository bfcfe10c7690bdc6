import math

import numpy as np
import pytest
from fairlearn.metrics import (
    demographic_parity_difference,
    equal_opportunity_difference,
    equalized_odds_difference,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import TypeCheckError

from covey.base import metrics
from covey.base.metrics import ByModel, Judged, bootstrapped, fairness, one_vs_rest_gaps


def judged(seed: int, size: int, groups: int = 2, classes: int = 3) -> Judged:
    """Answers that are right half of the time, whoever asks."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(classes, size=size)
    guesses = draw.integers(classes, size=size)
    return Judged(
        labels=labels,
        predictions=np.where(draw.random(size) < 0.5, labels, guesses),
        groups=draw.integers(groups, size=size),
        num_classes=classes,
    )


@pytest.mark.slow
@settings(max_examples=5)
@given(st.integers(0, 2**32 - 1), st.integers(2, 3), st.integers(2, 4))
def test_gaps_equal_fairlearns_on_one_class_against_the_rest(seed, groups, classes):
    answers = judged(seed, 200, groups, classes)
    found = one_vs_rest_gaps(answers, fewest=1)
    for c in range(classes):
        is_class = (answers.labels == c).astype(int)
        says = (answers.predictions == c).astype(int)
        expected = [
            difference(is_class, says, sensitive_features=answers.groups)
            for difference in (
                demographic_parity_difference,
                equal_opportunity_difference,
                equalized_odds_difference,  # worst case
            )
        ]
        np.testing.assert_allclose(found[:, c], expected, atol=1e-12)


def test_gaps_by_hand():
    # group 0: labels 0 0 1 1, answers 0 0 1 0;  group 1: labels 0 0 1 1, answers 0 1 1 0
    # class 0: said 3/4, 2/4 -> 1/4;  hits 2/2, 1/2 -> 1/2;  alarms 1/2, 1/2 -> 0;  odds 1/2
    # class 1: said 1/4, 2/4 -> 1/4;  hits 1/2, 1/2 -> 0;  alarms 0, 1/2 -> 1/2
    labels, predictions = np.array([0, 0, 1, 1] * 2), np.array([0, 0, 1, 0, 0, 1, 1, 0])
    answers = Judged(labels, predictions, np.repeat([0, 1], 4), num_classes=2)
    expected = [[1 / 4, 1 / 4], [1 / 2, 0], [1 / 2, 1 / 2]]
    np.testing.assert_allclose(one_vs_rest_gaps(answers, fewest=1), expected)
    facts = fairness(answers, np.random.default_rng(0), fewest=1)
    assert [(fact.mean.value, fact.maximum) for fact in facts] == [
        (1 / 4, 1 / 4),
        (1 / 4, 1 / 2),
        (1 / 2, 1 / 2),
    ]
    parity, *rates = one_vs_rest_gaps(answers, fewest=3)
    assert not np.isnan(parity).any()  # four answers of each group
    assert np.isnan(rates).all()  # two examples of each class


def test_a_class_that_a_group_lacks_gives_nan_and_not_zero():
    answers = Judged(
        labels=np.array([0, 1, 0, 0]),
        predictions=np.array([0, 1, 0, 1]),
        groups=np.array([0, 0, 1, 1]),
        num_classes=2,
    )
    parity, opportunity, odds = one_vs_rest_gaps(answers, fewest=1)
    assert not np.isnan(parity).any()
    assert np.isnan(opportunity).tolist() == [False, True]  # group 1 has no class 1
    assert np.isnan(odds).tolist() == [True, True]  # nor any "rest" of class 0
    known, unknown, _ = fairness(answers, np.random.default_rng(0), fewest=1)
    assert None not in (known.mean.value, known.maximum, known.p_value)
    assert (unknown.mean.value, unknown.maximum, unknown.p_value) == (None, None, None)


def p_values(answers: Judged, seed: int) -> list[float]:
    facts = fairness(answers, np.random.default_rng(seed), fewest=1)
    return [math.nan if fact.p_value is None else fact.p_value for fact in facts]


@pytest.fixture
def few_shuffles(monkeypatch) -> None:
    monkeypatch.setattr(metrics, "PERMUTATIONS", 50)


@pytest.mark.slow
@pytest.mark.usefixtures("few_shuffles")
def test_p_values_are_uniform_where_there_is_no_gap():
    # A mean of n uniform numbers has the standard error 0.289 / sqrt(n): beyond 3.3 of them
    # with probability 0.001; so is a share of the lowest quarter.
    drawn = np.array([p_values(judged(seed, 120), seed) for seed in range(80)])
    assert (abs(drawn.mean(axis=0) - 0.5) < 3.3 * 0.289 / math.sqrt(80)).all()
    lowest = (drawn <= 0.25).mean(axis=0)
    assert (abs(lowest - 0.25) < 3.3 * math.sqrt(0.25 * 0.75 / 80)).all()


def test_a_planted_gap_has_a_small_p_value():
    # The minority's answers are guesses: right with 1/3 instead of 2/3.
    answers = judged(0, 600)
    guesses = np.random.default_rng(50).integers(3, size=600)
    predictions = np.where(answers.groups == 0, guesses, answers.predictions)
    planted = Judged(answers.labels, predictions, answers.groups, 3)
    _, opportunity, odds = p_values(planted, 0)
    assert opportunity == odds == 1 / 201  # no shuffle out of 200 does as much


def test_the_bootstrap_spreads_as_binomial_shares_do():
    # Of 20 clients of group 0 half use a model that always says 1, half one that always
    # says 0; group 1 always 0. Parity of both classes: the share of the first model,
    # whose variance is .25 / 20, and of 100 answers by models of random clients.
    always = np.zeros((2, 2, 2, 2), dtype=np.int64)
    always[0, 0, :, 1] = 50
    always[0, 1, :, 0] = 50
    always[1, 1, :, 0] = 50
    use = ByModel(always, np.array([[10, 10], [0, 7]]))
    parity = bootstrapped(use, np.random.default_rng(0))[0]
    expected = 0.25 / 20 + 0.25 * (1 - 1 / 20) / 100
    assert (parity**2).mean() == pytest.approx(expected, rel=0.15)


@pytest.mark.usefixtures("few_shuffles")
@pytest.mark.parametrize(("models", "clients"), [(1, 5), (2, 3), (3, 8)])
def test_every_interval_holds_its_own_estimate(models, clients):
    draw = np.random.default_rng(models)
    confusions = draw.integers(1, 30, size=(2, models, 3, 3))
    use = ByModel(confusions, draw.multinomial(clients, np.ones(models) / models, size=2))
    said = np.einsum("gj,gjtp->gtp", use.clients, confusions)
    cells = [cell for cell, count in np.ndenumerate(said) for _ in range(count)]
    groups, labels, predictions = np.array(cells).T
    for fact in fairness(Judged(labels, predictions, groups, 3, use), draw, fewest=1):
        assert fact.mean.value is not None
        assert fact.mean.low is not None
        assert fact.mean.high is not None
        assert 0 <= fact.mean.low <= fact.mean.value <= fact.mean.high <= 1


# shapes are checked in the command that promises it, and in no other


def test_groups_that_disagree_are_refused_where_shapes_are_checked(pytestconfig):
    models_of_two_groups = np.zeros((2, 4, 3, 3), dtype=np.int64)
    clients_of_five = np.zeros((5, 4), dtype=np.int64)
    if pytestconfig.getoption("jaxtyping_packages"):
        with pytest.raises(TypeCheckError):
            ByModel(models_of_two_groups, clients_of_five)
    else:
        assert ByModel(models_of_two_groups, clients_of_five).clients.shape == (5, 4)
