"""Metrics by hand, and what holds of them for all answers."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from covey import Scored
from covey.engine.metrics import MeanSquaredError, TopK
from covey.engine.protocol import scored
from covey.engine.recipe import MULTICLASS

GRID = st.integers(-3, 3)  # few values, so that classes are often equally probable


def of_classes(rows: list[list[float]]) -> Scored:
    return scored(torch.tensor(rows), torch.zeros(len(rows), dtype=torch.int64), MULTICLASS)


def test_top_k_by_hand():
    answers = of_classes([[3.0, 2.0, 1.0], [1.0, 2.0, 3.0], [2.0, 2.0, 0.0]])
    labels = torch.tensor([1, 0, 1])
    assert TopK(k=1).measure(answers, labels).tolist() == [0, 0, 0]
    assert TopK(k=2).measure(answers, labels).tolist() == [1, 0, 1]
    assert TopK(k=3).measure(answers, labels).tolist() == [1, 1, 1]


def test_squared_errors_by_hand():
    predictions = torch.tensor([1.0, -2.0])
    answers = Scored(predictions, predictions, None, None)
    assert MeanSquaredError().measure(answers, torch.tensor([3.0, -2.0])).tolist() == [4.0, 0.0]


@given(
    st.lists(st.tuples(st.tuples(GRID, GRID, GRID, GRID), st.integers(0, 3)), min_size=1),
    st.integers(1, 5),
)
def test_top_1_is_accuracy_and_more_classes_are_right_as_often_or_more(rows, k):
    logits = torch.tensor([row for row, _ in rows], dtype=torch.float32)
    labels = torch.tensor([label for _, label in rows])
    answers = scored(logits, labels, MULTICLASS)
    first = TopK(k=1).measure(answers, labels)
    assert first.mean().item() == pytest.approx(answers.accuracy)
    assert (TopK(k=k).measure(answers, labels) >= first).all()
    assert (TopK(k=4).measure(answers, labels) == 1).all()
