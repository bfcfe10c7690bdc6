"""When a model is none: by hand, and for every answer that looks at no input."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from torch import nn

from covey import Examples, ReferenceEngine, RiskEstimate, Streams, Target
from covey.algorithms.redteam import RedTeamed
from covey.algorithms.state import initial_state
from covey.base.figure import Figure
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
    found = best_constant(torch.tensor(labels), tokens=tokens)
    assert found is not None
    assert (pytest.approx(found.loss), found.accuracy) == expected


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
    asked: list[Target] = []

    def attack(target: Target, _: Streams) -> Assessment:
        asked.append(target)
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
        found = team.look(target, Streams(0)).estimate
        assert (found.source, found.round_index) == ("mine", t)
        assert found.is_known == any(target is each for each in asked)
        if not found.is_known:
            assert found.reason == f"the model {found.diverged}"
            assert found.auc is None
            assert not found.counts
    assert len(asked) == len(fine)


def test_of_a_model_that_diverged_no_older_figure_counts(halves):
    found = Assessment(RiskEstimate(Figure(0.5, 0.01), 0.5, 9, 9))
    team = RedTeamed(
        lambda _, __: found, 1, {}, divergence=lambda t: "as guessing" if t.round_index > 1 else ""
    )
    start = initial_state(({"w": torch.zeros(2, 1)},)).with_choices({halves.handle: 0})
    first = team.measured(replace(start, round_index=1), (), Streams(0)).state
    assert [each is not None for each in first.risk_estimates()] == [True]
    second = team.measured(replace(first, round_index=2), (), Streams(0)).state
    assert second.risk_estimates() == (None,)


def test_who_predicts_the_majority_class_is_called_that_and_not_diverged(make_client):
    """Whatever the size of its loss: it is right on that class, and on nothing else."""
    labels = torch.tensor([0] * 85 + [1] * 15)
    client = make_client("a", Examples(torch.randn(100, 2), labels))
    zeros = [[0.0, 0.0]] * 2
    for bias in ([0.1, 0.0], [50.0, 0.0]):
        told = judged(client, "multiclass", zeros, bias)
        assert told.startswith("predicts the majority class: on 100 of its clients' examples")
        assert "an accuracy of 0.850, and 0.850 without inputs" in told
    assert judged(client, "multiclass", zeros, [0.0, 50.0]).startswith("diverged: ")
