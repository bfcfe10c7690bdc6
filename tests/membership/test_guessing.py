"""When a model is none, and figures over clients, by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from fairlearn.metrics import (
    demographic_parity_difference,
    equal_opportunity_difference,
    equalized_odds_difference,
)
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from jaxtyping import TypeCheckError
from torch import nn

from covey import Examples, ReferenceEngine, RiskEstimate, Streams, Target
from covey.algorithms.redteam import RedTeamed
from covey.algorithms.state import initial_state
from covey.base import metrics
from covey.base.figure import Figure
from covey.base.metrics import ByModel, Judged, bootstrapped, fairness, one_vs_rest_gaps
from covey.data.examples import Client
from covey.engine.recipe import TASKS
from covey.membership.truth import (
    Assessment,
    best_constant,
    divergence,
    has_finite_examples,
    no_better_than_guessing,
)


def judged(
    client: Client, task: str, w: list[list[float]], b: list[float], times: float = 1.0
) -> str:
    """With w = 0, an answer that looks at no input."""
    params = {"weight": torch.tensor(w), "bias": torch.tensor(b)}
    engine = ReferenceEngine(nn.Linear(len(w[0]), len(b)), TASKS[task])
    return no_better_than_guessing(engine, params, [client], times)


SKEWED = -0.75 * math.log(0.75) - 0.25 * math.log(0.25)


@pytest.mark.parametrize(
    ("labels", "tokens", "expected"),
    [
        ([0, 0, 0, 1], False, (SKEWED, 0.75)),
        # one label of two is always 1, the other is a coin: ln 2 / 2, and right 3 times in 4
        ([[1, 0], [1, 1]], False, (math.log(2) / 2, 0.75)),
        # a mean over two examples, of which one has a single token: (1/2 + 1) / 2 are class 1
        ([[0, 1], [1, -100]], True, (SKEWED, 0.75)),
        ([1.0, 3.0], False, (0.5, None)),  # variance 1, halved
    ],
)
def test_the_best_constant_by_hand(labels, tokens, expected):
    best = best_constant(torch.tensor(labels), tokens=tokens)
    assert best is not None
    assert (pytest.approx(best.loss), best.accuracy) == expected


@pytest.mark.parametrize("labels", [[3, 3, 3], [[1, 0], [1, 0]], [2.5, 2.5], []], ids=str)
def test_where_a_constant_is_perfect_nobody_can_tell(labels):
    assert best_constant(torch.tensor(labels)) is None


@given(
    labels=st.lists(st.integers(0, 3), min_size=2, max_size=60),
    logits=arrays.arrays(np.float32, 4, elements=st.floats(-50, 50, width=32)),
)
def test_whoever_looks_at_no_input_is_found_out(make_client, labels, logits):
    assume(len(set(labels)) > 1)
    client = make_client("a", Examples(torch.randn(len(labels), 2), torch.tensor(labels)))
    assert judged(client, "multiclass", [[0.0, 0.0]] * 4, logits.tolist())


@pytest.fixture
def halves(make_client) -> Client:
    """100 examples of two classes, which their one input tells apart."""
    x = torch.tensor([[-1.0], [1.0]]).repeat(50, 1)
    return make_client("a", Examples(x, (x[:, 0] > 0).long()))


def test_who_knows_the_classes_is_a_model_and_who_is_always_wrong_or_says_nan_is_none(
    make_client, halves
):
    def says(client: Client, w: float) -> str:
        return judged(client, "multiclass", [[-w], [w]], [0.0, 0.0])

    assert says(halves, 1.0) == ""
    assert says(halves, -1.0).startswith("diverged: on 100 of its clients")
    assert says(halves, -0.01).startswith("is no better than guessing: on 100")
    assert "not finite" in says(halves, math.nan)
    # 80 of 100 right, and the 20 others cost 2000 nats each: badly scaled losses
    held = halves.train
    labels = torch.cat([1 - held.labels[:20], held.labels[20:]])
    assert says(make_client("b", Examples(held.inputs, labels)), 1000.0) == ""
    nowhere = make_client("c", Examples(torch.full((50, 1), math.nan), torch.arange(50) % 2))
    assert not has_finite_examples(nowhere)
    assert says(nowhere, 0.0) == ""  # broken examples judge nobody


def test_in_the_middle_of_a_run_only_what_is_far_beyond_guessing_is_none(halves):
    silent, loud = [[0.0], [0.0]], [[100.0], [-100.0]]
    assert judged(halves, "multiclass", silent, [0.0, 0.0])
    assert not judged(halves, "multiclass", silent, [0.0, 0.0], times=3.0)
    assert judged(halves, "multiclass", loud, [0.0, 0.0], times=3.0)


def test_the_red_team_is_not_asked_about_what_is_no_model(halves):
    scored: list[Target] = []

    def attack(target: Target, _: Streams) -> Assessment:
        scored.append(target)
        return Assessment(RiskEstimate(Figure(0.5, 0.01), 0.5, 9, 9))

    silent = {"weight": torch.zeros(2, 1), "bias": torch.zeros(2)}
    knows = {"weight": torch.tensor([[-1.0], [1.0]]), "bias": torch.zeros(2)}
    infinite, start = ({**silent, "bias": torch.full((2,), value)} for value in (math.inf, 1.0))
    engine = ReferenceEngine(nn.Linear(1, 2))
    team = RedTeamed(
        attack, 1, {}, source="mine", divergence=lambda t: divergence(engine, t, [start], rounds=4)
    )
    broken = [(infinite, 2, ""), (silent, 4, ""), (knows, 2, "its training diverged")]
    # what learns still, and what nobody has moved yet, has not diverged
    fine = [(knows, 2, ""), (knows, 4, ""), (silent, 2, ""), (start, 4, "")]
    for params, t, known in (*broken, *fine):
        target = Target(0, params, (halves,), t, diverged=known)
        estimate = team.look(target, Streams(0)).estimate
        assert (estimate.source, estimate.round_index) == ("mine", t)
        assert estimate.is_known == any(target is one for one in scored)
        if not estimate.is_known:
            assert estimate.reason == f"the model {estimate.diverged}"
            assert estimate.auc is None
            assert not estimate.counts
    assert len(scored) == len(fine)


def test_of_a_model_that_diverged_no_older_figure_counts(halves):
    assessment = Assessment(RiskEstimate(Figure(0.5, 0.01), 0.5, 9, 9))
    team = RedTeamed(
        lambda _, __: assessment,
        1,
        {},
        divergence=lambda t: "as guessing" if t.round_index > 1 else "",
    )
    start = initial_state(({"w": torch.zeros(2, 1)},)).with_choices({halves.handle: 0})
    first = team.measured(replace(start, round_index=1), (), Streams(0)).state
    assert [estimate is not None for estimate in first.risk_estimates()] == [True]
    second = team.measured(replace(first, round_index=2), (), Streams(0)).state
    assert second.risk_estimates() == (None,)


def test_who_predicts_the_majority_class_is_called_that_and_not_diverged(make_client):
    """Whatever the size of its loss: it is right on that class, and on nothing else."""
    labels = torch.tensor([0] * 85 + [1] * 15)
    client = make_client("a", Examples(torch.randn(100, 2), labels))
    zeros = [[0.0, 0.0]] * 2
    for bias in ([0.1, 0.0], [50.0, 0.0]):
        judgement = judged(client, "multiclass", zeros, bias)
        assert judgement.startswith("predicts the majority class: on 100 of its clients' examples")
        assert "an accuracy of 0.850, and 0.850 without inputs" in judgement
    assert judged(client, "multiclass", zeros, [0.0, 50.0]).startswith("diverged: ")


def judged_accuracies(seed: int, size: int, groups: int = 2, classes: int = 3) -> Judged:
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
    answers = judged_accuracies(seed, 200, groups, classes)
    gaps = one_vs_rest_gaps(answers, fewest=1)
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
        np.testing.assert_allclose(gaps[:, c], expected, atol=1e-12)


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
    drawn = np.array([p_values(judged_accuracies(seed, 120), seed) for seed in range(80)])
    assert (abs(drawn.mean(axis=0) - 0.5) < 3.3 * 0.289 / math.sqrt(80)).all()
    lowest = (drawn <= 0.25).mean(axis=0)
    assert (abs(lowest - 0.25) < 3.3 * math.sqrt(0.25 * 0.75 / 80)).all()


def test_a_planted_gap_has_a_small_p_value():
    # The minority's answers are guesses: right with 1/3 instead of 2/3.
    answers = judged_accuracies(0, 600)
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
