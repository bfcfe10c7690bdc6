import math
from dataclasses import replace

import numpy as np
import pytest
from fairlearn.metrics import (
    demographic_parity_difference,
    equal_opportunity_difference,
    equalized_odds_difference,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.base import metrics
from covey.base.metrics import GAPS, ByModel, Judged, bootstrapped, fairness, one_vs_rest_gaps


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
def test_gaps_equal_fairlearns_on_one_class_against_the_rest(seed: int, groups: int, classes: int):
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


@settings(max_examples=10)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_gaps_of_several_labels_are_those_of_each_label_alone(seed: int, labels: int):
    draw = np.random.default_rng(seed)
    truth, said = draw.integers(2, size=(2, 200, labels))
    groups = draw.integers(2, size=200)
    found = one_vs_rest_gaps(Judged(truth, said, groups, labels), fewest=1)
    for k in range(labels):
        alone = Judged(truth[:, k], said[:, k], groups, 2)
        expected = one_vs_rest_gaps(alone, fewest=1)[:, 1]
        np.testing.assert_array_equal(found[:, k], expected)


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
    np.testing.assert_allclose(one_vs_rest_gaps(by_hand(), fewest=1), expected)


def test_mean_and_maximum_over_the_classes_by_hand():
    facts = fairness(by_hand(), np.random.default_rng(0), fewest=1)
    assert tuple(fact.gap for fact in facts) == GAPS
    assert [fact.mean.value for fact in facts] == [1 / 4, 1 / 4, 1 / 2]
    assert [fact.maximum for fact in facts] == [1 / 4, 1 / 2, 1 / 2]


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


def test_one_group_has_no_gaps():
    answers = judged(0, 20, groups=1)
    assert fairness(answers, np.random.default_rng(0), fewest=1) == ()


def p_values(answers: Judged, seed: int) -> list[float]:
    facts = fairness(answers, np.random.default_rng(seed), fewest=1)
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


@pytest.mark.slow
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


@pytest.mark.slow
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


def test_a_class_with_too_few_examples_in_some_group_gives_nan():
    parity, opportunity, odds = one_vs_rest_gaps(by_hand(), fewest=3)
    assert not np.isnan(parity).any()  # four answers of each group
    assert np.isnan(opportunity).all()  # two examples of each class
    assert np.isnan(odds).all()


def by_model(clients: list[list[int]], seed: int = 0) -> ByModel:
    draw = np.random.default_rng(seed)
    confusions = draw.integers(1, 30, size=(2, len(clients[0]), 3, 3))
    return ByModel(confusions, np.array(clients))


def as_answers(confusions: np.ndarray) -> Judged:
    """The answers that these counts [group, true, predicted] are the counts of."""
    cells = [
        (group, true, said)
        for (group, true, said), count in np.ndenumerate(confusions)
        for _ in range(count)
    ]
    groups, labels, predictions = np.array(cells).T
    return Judged(labels, predictions, groups, confusions.shape[1])


def test_test_examples_drawn_anew_spread_as_binomial_shares_do():
    # Each group has one model, so that its clients move nothing. Of 200 test examples
    # half are of class 1, which group 0 finds in 4 of 5 cases, group 1 always. Hits of
    # class 1 move by sqrt(.8 * .2 / 100), those of class 0, all right, not at all.
    confusions = np.array([[[[100, 0], [20, 80]]], [[[100, 0], [0, 100]]]])
    use = ByModel(confusions, np.array([[5], [9]]))
    opportunity = bootstrapped(use, np.random.default_rng(0))[1]
    expected = 0.8 * 0.2 / 100 / 2**2  # the mean over two classes
    assert (opportunity**2).mean() == pytest.approx(expected, rel=0.15)


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
def test_intervals_cover_the_gap_of_models_that_other_examples_would_show():
    # Two groups, each with one model, right at .75 and .60: equal opportunity .15. Seen
    # are 40 test examples of each of three classes. 100 draws: SE of the share .022.
    right, held = np.array([0.75, 0.60]), list[bool]()
    draw = np.random.default_rng(0)
    for _ in range(100):
        confusions = np.zeros((2, 1, 3, 3), dtype=np.int64)
        for group, _, true in np.ndindex(2, 1, 3):
            shares = np.full(3, (1 - right[group]) / 2)
            shares[true] = right[group]
            confusions[group, 0, true] = draw.multinomial(40, shares)
        use = ByModel(confusions, np.array([[32], [8]]))
        answers = replace(as_answers(confusions[:, 0]), by_model=use)
        _, opportunity, _ = fairness(answers, draw)
        assert opportunity.mean.low is not None
        assert opportunity.mean.high is not None
        held.append(opportunity.mean.low <= 0.15 <= opportunity.mean.high)
    assert np.mean(held) >= 0.93


def test_an_interval_holds_the_gap_of_the_clients_there_are():
    use = by_model([[6, 6], [8, 4]])
    weighted = np.einsum("gj,gjtp->gtp", use.clients, use.confusions)
    answers = as_answers(weighted)
    answers = Judged(answers.labels, answers.predictions, answers.groups, 3, use)
    for fact in fairness(answers, np.random.default_rng(0)):
        assert fact.mean.low is not None
        assert fact.mean.high is not None
        assert fact.mean.value is not None
        assert fact.mean.low <= fact.mean.value <= fact.mean.high


def turn_taking(use: ByModel, size: int) -> Judged:
    """The answers of clients that take turns: a part of what their models say."""
    draw = np.random.default_rng(0)
    labels, said, groups = list[int](), list[int](), list[int]()
    for group, row in enumerate(use.clients):
        users = np.repeat(np.arange(len(row)), row)
        for k in range(size):
            cells = use.confusions[group, users[k % len(users)]]
            true, answer = divmod(
                int(draw.choice(cells.size, p=cells.ravel() / cells.sum())), len(cells)
            )
            labels.append(true)
            said.append(answer)
            groups.append(group)
    classes = use.confusions.shape[-1]
    arrays = np.array(labels), np.array(said), np.array(groups)
    return Judged(*arrays, num_classes=classes, by_model=use)


@pytest.mark.usefixtures("few_shuffles")
@pytest.mark.parametrize(("models", "clients"), [(1, 5), (2, 3), (2, 12), (3, 8)])
@pytest.mark.parametrize("seed", range(4))
def test_every_interval_holds_its_own_estimate(models: int, clients: int, seed: int):
    draw = np.random.default_rng(seed)
    users = draw.multinomial(clients, np.ones(models) / models, size=2)
    use = by_model(users.tolist(), seed)
    for fact in fairness(turn_taking(use, 90), draw, fewest=1):
        assert fact.mean.value is not None
        assert fact.mean.low is not None
        assert fact.mean.high is not None
        assert 0 <= fact.mean.low <= fact.mean.value <= fact.mean.high <= 1


@pytest.mark.slow
@pytest.mark.usefixtures("few_shuffles")
@pytest.mark.parametrize("are_alike", [True, False])
def test_intervals_cover_the_gap_of_the_population_that_the_clients_come_from(*, are_alike: bool):
    # Where groups are alike, chance alone makes gaps, in the clients and once more in
    # each resample: percentiles of the resamples lie above the truth, which is 0.
    draw, held = np.random.default_rng(0), list[bool]()
    for seed in range(40):
        confusions = np.zeros((2, 6, 3, 3), dtype=np.int64)
        for cell in np.ndindex(1, 6, 3):
            right = draw.uniform(0.5, 0.9)
            shares = np.full(3, (1 - right) / 2)
            shares[cell[2]] = right
            confusions[:, *cell[1:]] = (shares * 1000).round()
        mixes = [draw.dirichlet(np.full(6, 2.0)) for _ in range(2)]
        mix = np.stack([mixes[0], mixes[0 if are_alike else 1]])
        truth = gaps_of(np.einsum("gj,gjtp->gtp", mix, confusions))
        clients = np.stack(list(map(draw.multinomial, (32, 20), mix)))
        found = fairness(turn_taking(ByModel(confusions, clients), 60), np.random.default_rng(seed))
        for fact, value in zip(found, truth, strict=True):
            assert fact.mean.low is not None
            assert fact.mean.high is not None
            held.append(fact.mean.low <= value <= fact.mean.high)
    assert np.mean(held) > 0.9  # 95% were it not for so few clients


def gaps_of(shares: np.ndarray) -> np.ndarray:
    """The mean gaps of a population whose groups answer with these shares."""
    return one_vs_rest_gaps(as_answers((shares * 10).round().astype(int)), 1).mean(1)


def test_without_enough_examples_there_is_no_interval():
    use = by_model([[5, 1], [1, 9]])
    drawn = bootstrapped(use, np.random.default_rng(0), fewest=1000)
    assert np.isnan(drawn).all()
