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

from covey import metrics
from covey.metrics import GAPS, Judged, fairness, one_vs_rest_gaps


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


@settings(max_examples=15)
@given(st.integers(0, 2**32 - 1), st.integers(2, 3), st.integers(2, 4))
def test_gaps_equal_fairlearns_on_one_class_against_the_rest(
    seed: int, groups: int, classes: int
):
    answers = judged(seed, 200, groups, classes)
    found = one_vs_rest_gaps(answers)
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


def by_hand() -> Judged:
    # group 0: labels 0 0 1 1, answers 0 0 1 0;  group 1: labels 0 0 1 1, answers 0 1 1 1
    # class 0: said 3/4, 1/4 -> 1/2;  hits 2/2, 1/2 -> 1/2;  alarms 1/2, 0/2 -> 1/2
    # class 1: said 1/4, 3/4 -> 1/2;  hits 1/2, 2/2 -> 1/2;  alarms 0/2, 1/2 -> 1/2
    # with one more wrong answer of group 1 for label 1 (answer 0 instead of 1):
    # class 0: said 3/4, 2/4 -> 1/4;  hits 1/2;  alarms 1/2, 1/2 -> 0;   odds 1/2
    # class 1: said 1/4, 2/4 -> 1/4;  hits 1/2, 1/2 -> 0;  alarms 0, 1/2 -> 1/2
    return Judged(
        labels=np.array([0, 0, 1, 1, 0, 0, 1, 1]),
        predictions=np.array([0, 0, 1, 0, 0, 1, 1, 0]),
        groups=np.array([0, 0, 0, 0, 1, 1, 1, 1]),
        num_classes=2,
    )


def test_gaps_by_hand():
    expected = [[1 / 4, 1 / 4], [1 / 2, 0], [1 / 2, 1 / 2]]
    np.testing.assert_allclose(one_vs_rest_gaps(by_hand()), expected)


def test_mean_and_maximum_over_the_classes_by_hand():
    facts = fairness(by_hand(), np.random.default_rng(0))
    assert tuple(fact.gap for fact in facts) == GAPS
    assert [fact.mean for fact in facts] == [1 / 4, 1 / 4, 1 / 2]
    assert [fact.maximum for fact in facts] == [1 / 4, 1 / 2, 1 / 2]


def test_a_class_that_a_group_lacks_gives_nan_and_not_zero():
    answers = Judged(
        labels=np.array([0, 1, 0, 0]),
        predictions=np.array([0, 1, 0, 1]),
        groups=np.array([0, 0, 1, 1]),
        num_classes=2,
    )
    parity, opportunity, odds = one_vs_rest_gaps(answers)
    assert not np.isnan(parity).any()
    assert np.isnan(opportunity).tolist() == [False, True]  # group 1 has no class 1
    assert np.isnan(odds).tolist() == [True, True]  # nor any "rest" of class 0
    known, unknown, _ = fairness(answers, np.random.default_rng(0))
    assert None not in (known.mean, known.maximum, known.p_value)
    assert (unknown.mean, unknown.maximum, unknown.p_value) == (None, None, None)


def test_one_group_has_no_gaps():
    answers = judged(0, 20, groups=1)
    assert fairness(answers, np.random.default_rng(0)) == ()


def p_values(answers: Judged, seed: int) -> list[float]:
    facts = fairness(answers, np.random.default_rng(seed))
    return [math.nan if fact.p_value is None else fact.p_value for fact in facts]


@pytest.fixture
def few_shuffles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "PERMUTATIONS", 50)


def assert_uniform(drawn: np.ndarray) -> None:
    """A mean of n uniform numbers has the standard error 0.289 / sqrt(n).

    Beyond 3.3 of them with probability 0.001; so is a share of the lowest quarter.
    """
    n = len(drawn)
    assert abs(drawn.mean() - 0.5) < 3.3 * 0.289 / math.sqrt(n)
    assert abs((drawn <= 0.25).mean() - 0.25) < 3.3 * math.sqrt(0.25 * 0.75 / n)


@pytest.mark.usefixtures("few_shuffles")
def test_p_values_are_uniform_where_there_is_no_gap():
    drawn = np.array([p_values(judged(seed, 120), seed) for seed in range(80)])
    for column in drawn.T:
        assert_uniform(column)


def rare_class(seed: int) -> Judged:
    """As many as 240 answers, but only three of class 2, and a minority of 30%."""
    draw = np.random.default_rng(seed)
    labels = np.concatenate([draw.integers(2, size=237), np.full(3, 2)])
    guesses = draw.integers(3, size=240)
    predictions = np.where(draw.random(240) < 0.5, labels, guesses)
    groups = (draw.random(240) < 0.3).astype(np.int64)
    return Judged(labels, predictions, groups, 3)


@pytest.mark.usefixtures("few_shuffles")
def test_p_values_are_uniform_although_a_shuffle_may_leave_a_group_without_a_class():
    drawn = np.array([p_values(rare_class(seed), seed) for seed in range(120)])
    opportunity = drawn[:, 1]
    known = opportunity[~np.isnan(opportunity)]
    assert len(known) > 60  # 1 - 0.7^3 - 0.3^3 = 63% have it on both sides
    assert_uniform(known)


@pytest.mark.parametrize("seed", range(3))
def test_a_planted_gap_has_a_small_p_value(seed: int):
    # The minority's answers are guesses: right with 1/3 instead of 2/3.
    answers = judged(seed, 600)
    guesses = np.random.default_rng(seed + 50).integers(3, size=600)
    predictions = np.where(answers.groups == 0, guesses, answers.predictions)
    planted = Judged(answers.labels, predictions, answers.groups, 3)
    _, opportunity, odds = p_values(planted, seed)
    assert opportunity == odds == 1 / 201  # no shuffle out of 200 does as much
