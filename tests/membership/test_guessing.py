"""When a model is none: by hand, and for every answer that looks at no input."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from torch import Tensor, nn

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
    has_non_finite_values,
    no_better_than_guessing,
)

MakeClient = Callable[..., Client]


class Linear(nn.Module):
    """Outputs w x + b: with w = 0, an answer that looks at no input."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(outputs, inputs))
        self.b = nn.Parameter(torch.zeros(outputs))

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs @ self.w.T + self.b


def judged(
    client: Client, task: str, w: list[list[float]], b: list[float], times: float = 1.0
) -> str:
    module = Linear(client.train.inputs.shape[1], len(b))
    params = {"w": torch.tensor(w), "b": torch.tensor(b)}
    engine = ReferenceEngine(module, TASKS[task])
    return no_better_than_guessing(engine, params, [client], times)


def test_the_best_constant_by_hand():
    three_to_one = best_constant(torch.tensor([0, 0, 0, 1]))
    assert three_to_one is not None
    assert three_to_one.loss == pytest.approx(-0.75 * math.log(0.75) - 0.25 * math.log(0.25))
    assert three_to_one.accuracy == 0.75
    # one label of two is always 1, the other is a coin: ln 2 / 2, and right 3 times in 4
    labels = best_constant(torch.tensor([[1, 0], [1, 1]]))
    assert labels is not None
    assert labels.loss == pytest.approx(math.log(2) / 2)
    assert labels.accuracy == 0.75
    # a mean over two examples, of which one has a single token: (1/2 + 1) / 2 are class 1
    tokens = best_constant(torch.tensor([[0, 1], [1, -100]]), tokens=True)
    assert tokens is not None
    assert tokens.loss == pytest.approx(-0.75 * math.log(0.75) - 0.25 * math.log(0.25))
    assert tokens.accuracy == 0.75
    number = best_constant(torch.tensor([1.0, 3.0]))  # variance 1, halved
    assert number is not None
    assert (number.loss, number.accuracy) == (0.5, None)


@pytest.mark.parametrize(
    "labels",
    [
        torch.tensor([3, 3, 3]),
        torch.tensor([[1, 0], [1, 0]]),
        torch.tensor([2.5, 2.5]),
        torch.tensor([], dtype=torch.int64),
    ],
    ids=["one class", "one set of labels", "one number", "none"],
)
def test_where_a_constant_is_perfect_nobody_can_tell(labels):
    assert best_constant(labels) is None


@given(
    labels=st.lists(st.integers(0, 3), min_size=2, max_size=60),
    logits=arrays.arrays(np.float32, 4, elements=st.floats(-50, 50, width=32)),
)
def test_whoever_looks_at_no_input_is_found_out(make_client, labels, logits):
    if len(set(labels)) == 1:
        return
    examples = Examples(torch.randn(len(labels), 2), torch.tensor(labels))
    client = make_client("a", examples)
    assert judged(client, "multiclass", [[0.0, 0.0]] * 4, logits.tolist())


@given(shift=st.integers(-100, 100), values=st.lists(st.integers(-9, 9), min_size=2))
def test_a_constant_number_is_found_out(make_client, shift, values):
    y = torch.tensor(values).float()
    if best_constant(y) is None:
        return
    client = make_client("a", Examples(torch.randn(len(y), 1), y))
    assert judged(client, "regression", [[0.0]], [float(shift)])


@pytest.fixture
def halves(make_client: MakeClient) -> Client:
    """100 examples of two classes, which their one input tells apart."""
    x = torch.tensor([[-1.0], [1.0]]).repeat(50, 1)
    return make_client("a", Examples(x, (x[:, 0] > 0).long()))


def test_who_knows_the_classes_is_a_model(halves):
    assert judged(halves, "multiclass", [[-1.0], [1.0]], [0.0, 0.0]) == ""


def test_right_answers_with_badly_scaled_losses_are_a_model(make_client):
    # 80 of 100 right, and the 20 others cost 2000 nats each.
    x = torch.tensor([[-1.0], [1.0]]).repeat(50, 1)
    labels = (x[:, 0] > 0).long()
    labels[:20] = 1 - labels[:20]
    client = make_client("a", Examples(x, labels))
    assert judged(client, "multiclass", [[-1000.0], [1000.0]], [0.0, 0.0]) == ""


def test_a_model_that_is_always_wrong_or_says_nan_is_none(halves):
    wrong = judged(halves, "multiclass", [[1.0], [-1.0]], [0.0, 0.0])
    assert "no better than guessing on 100" in wrong
    assert "not finite" in judged(halves, "multiclass", [[math.nan], [0.0]], [0.0, 0.0])


def test_in_the_middle_of_a_run_only_what_is_far_beyond_guessing_is_none(halves):
    silent, loud = [[0.0], [0.0]], [[100.0], [-100.0]]
    assert judged(halves, "multiclass", silent, [0.0, 0.0])
    assert not judged(halves, "multiclass", silent, [0.0, 0.0], times=3.0)
    assert judged(halves, "multiclass", loud, [0.0, 0.0], times=3.0)


def test_a_client_with_broken_examples_judges_nobody(make_client, halves):
    nowhere = make_client("b", Examples(torch.full((50, 1), math.nan), torch.arange(50) % 2))
    assert not has_finite_examples(nowhere)
    assert has_finite_examples(halves)
    assert judged(nowhere, "multiclass", [[0.0], [0.0]], [0.0, 0.0]) == ""


def test_the_red_team_is_not_asked_about_what_is_no_model(halves):
    asked: list[Target] = []

    def attack(target: Target, _: Streams) -> Assessment:
        asked.append(target)
        return Assessment(RiskEstimate(Figure(0.5, 0.01), 0.5, 9, 9))

    silent = {"w": torch.zeros(2, 1), "b": torch.zeros(2)}
    knows = {"w": torch.tensor([[-1.0], [1.0]]), "b": torch.zeros(2)}
    infinite = {**knows, "b": torch.tensor([0.0, math.inf])}
    engine = ReferenceEngine(Linear(1, 2))
    start = [{**silent, "b": torch.ones(2)}]
    team = RedTeamed(
        attack, 1, {}, source="mine", divergence=lambda t: divergence(engine, t, start, rounds=4)
    )

    def look(params: dict[str, Tensor], t: int, known: str = "") -> Assessment:
        target = Target(0, params, (halves,), t, diverged=known)
        return team.look(target, Streams(0))

    for params, t, known in (
        (infinite, 2, ""),
        (silent, 4, ""),
        (knows, 2, "its training diverged"),
    ):
        found = look(params, t, known).estimate
        assert not found.is_known
        assert found.diverged
        assert (found.source, found.round_index) == ("mine", t)
        assert found.auc is None
        assert not found.counts
        assert found.reason == f"diverged: {found.diverged}"
    assert not asked
    # what learns still, and what nobody has moved yet, has not diverged
    for params, t in ((knows, 2), (knows, 4), (silent, 2), (start[0], 4)):
        found = look(params, t).estimate
        assert found.is_known
        assert (found.source, found.round_index) == ("mine", t)
    assert len(asked) == 4


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


def test_the_first_entry_that_is_not_finite_is_named():
    params = {"b": torch.tensor([1]), "c": torch.tensor([math.nan]), "a": torch.ones(2)}
    assert has_non_finite_values(params) == "its c holds numbers that are not finite"
    assert has_non_finite_values({**params, "c": torch.zeros(1)}) == ""
