"""Tasks, metrics and batches, by hand; and that every engine asks the same."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from covey import (
    DataError,
    Engine,
    Examples,
    ModelError,
    Recipe,
    ReferenceEngine,
    Scored,
    ScoringJob,
    Streams,
    Task,
    TrainingJob,
    run,
)
from covey.engine.cpu import ParallelEngine
from covey.engine.metrics import MeanSquaredError, TopK
from covey.engine.optimizers import Sgd
from covey.engine.protocol import batch_indices, num_steps, scored
from covey.engine.recipe import MULTICLASS, MULTILABEL, REGRESSION, TASKS, TOKENS
from covey.engine.vmap import VmapEngine

INPUTS = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [2.0, -1.0], [0.5, 0.5]])
LABELS = {
    "multiclass": torch.tensor([0, 1, 1, 0, 1]),
    "multilabel": torch.tensor([[0, 1], [1, 1], [0, 0], [1, 0], [1, 1]]),
    "regression": torch.tensor([0.5, -1.0, 2.0, 0.0, 1.0]),
    "tokens": torch.tensor([[0, 2, -100], [1, -100, -100], [-100, 2, 1], [1, 0, 2], [0, 0, 1]]),
}
RECIPE = Recipe(local_epochs=3, batch_size=2, learning_rate=0.2, optimizer=Sgd(momentum=0.5))

MakeEngine = Callable[[nn.Module, Task], Engine]
ENGINES: dict[str, MakeEngine] = {
    "parallel": lambda module, task: ParallelEngine(module, workers=2, task=task),
    "vmap": lambda module, task: VmapEngine(module, task=task),
}


def linear(task: Task) -> nn.Module:
    outputs = task.outputs(LABELS[task.name])
    with Streams(1).at("tiny").lent_to_torch():
        return PerToken(outputs) if task is TOKENS else nn.Linear(2, outputs, bias=False)


class PerToken(nn.Linear):
    """Scores of every class for each of three tokens."""

    def __init__(self, classes: int) -> None:
        super().__init__(2, 3 * classes, bias=False)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return super().forward(input).unflatten(1, (3, -1))


def job(task: Task, recipe: Recipe = RECIPE) -> TrainingJob:
    start = dict(linear(task).state_dict())
    return TrainingJob(start, Examples(INPUTS, LABELS[task.name]), Streams(0), recipe)


def test_several_labels_by_hand():
    outputs = torch.tensor([[0.0, math.log(3)], [2.0, -2.0]])
    labels = torch.tensor([[1, 0], [1, 1]])
    # -log 1/2 and -log 1/4; log(1 + e^-2) and log(1 + e^2)
    expected = [1.5 * math.log(2), (math.log1p(math.exp(-2)) + math.log1p(math.exp(2))) / 2]
    losses = MULTILABEL.losses(outputs, labels)
    torch.testing.assert_close(losses, torch.tensor(expected))
    predictions = MULTILABEL.predictions(outputs)
    assert predictions.tolist() == [[0, 1], [1, 0]]
    correct = MULTILABEL.correct(predictions, labels)
    assert correct is not None
    assert correct.tolist() == [0.0, 0.5]


def test_a_number_by_hand():
    outputs, labels = torch.tensor([[1.0], [-2.0]]), torch.tensor([0.0, 1.0])
    assert REGRESSION.losses(outputs, labels).tolist() == [0.5, 4.5]
    assert REGRESSION.predictions(outputs).tolist() == [1.0, -2.0]
    assert REGRESSION.correct(outputs[:, 0], labels) is None


def test_tokens_by_hand():
    """Two classes; the first example has two tokens and one of padding, the second has one."""
    ln3 = math.log(3)  # sure of a class with 3/4
    outputs = torch.tensor([[[0, ln3], [0, ln3], [9, 0.0]], [[9, 9], [0, 0], [0, 7.0]]])
    labels = torch.tensor([[1, 0, -100], [-100, 1, -100]])
    losses = TOKENS.losses(outputs, labels)
    expected = [(-math.log(3 / 4) - math.log(1 / 4)) / 2, math.log(2)]
    torch.testing.assert_close(losses, torch.tensor(expected))
    predictions = TOKENS.predictions(outputs)
    assert predictions[0].tolist() == [1, 1, 0]
    correct = TOKENS.correct(predictions, labels)
    assert correct is not None
    assert correct.tolist() == [0.5, 0.0]
    score = scored(outputs, labels, TOKENS)
    assert score.num_tokens is not None
    assert score.num_tokens.tolist() == [2, 1]
    assert score.accuracy == 0.25  # of examples, not 1 of 3 tokens
    assert score.log_probs is None


@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("task", TASKS)
def test_labels_of_another_task_are_refused(task: str, labels: str):
    if task != labels and (task, labels) != ("tokens", "multilabel"):  # these are both
        with pytest.raises(DataError, match=f"model.task = '{task}' needs labels"):
            TASKS[task].outputs(LABELS[labels])


@pytest.mark.parametrize(
    ("task", "labels"),
    [
        (MULTICLASS, torch.tensor([0, -1])),
        (MULTILABEL, torch.tensor([[0, 2]])),
        (REGRESSION, torch.tensor([0.0, math.nan])),
        (TOKENS, torch.tensor([[0, -1]])),
        (TOKENS, torch.tensor([[0, 1], [-100, -100]])),
    ],
    ids=["negative", "two", "nan", "negative token", "all masked"],
)
def test_impossible_labels_are_refused(task: Task, labels: torch.Tensor):
    with pytest.raises(DataError, match="correct them, or choose among"):
        task.outputs(labels)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("task", TASKS.values(), ids=list(TASKS))
def test_every_engine_trains_and_scores_as_the_reference(engine: str, task: Task):
    module, work = linear(task), job(task)
    fast, slow = ENGINES[engine](module, task), ReferenceEngine(module, task)
    (trained,), (expected,) = list(fast.train([work])), list(slow.train([work]))
    torch.testing.assert_close(dict(trained), dict(expected), rtol=0, atol=1e-6)
    assert not torch.equal(trained["weight"], work.start["weight"])
    scoring = [ScoringJob(trained, work.examples)]
    (score,), (truth,) = fast.score(scoring), slow.score(scoring)
    for name in ("losses", "predictions", "correct", "log_probs", "num_tokens"):
        left, right = getattr(score, name), getattr(truth, name)
        assert (left is None) == (right is None)
        if right is not None:
            torch.testing.assert_close(left, right, rtol=0, atol=1e-6)


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


def normalised() -> nn.Module:
    return nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3))


def drawn(num_examples: int, recipe: Recipe, seed: int = 0) -> list[list[int]]:
    batches = batch_indices(num_examples, recipe, np.random.default_rng(seed))
    return [batch.tolist() for batch in batches]


@given(st.integers(1, 30), st.integers(1, 12), st.integers(1, 3))
def test_every_epoch_visits_every_example_once(num_examples: int, batch_size: int, epochs: int):
    batches = drawn(num_examples, Recipe(local_epochs=epochs, batch_size=batch_size))
    visits = [index for batch in batches for index in batch]
    for epoch in range(epochs):
        visited = visits[epoch * num_examples : (epoch + 1) * num_examples]
        assert sorted(visited) == list(range(num_examples))


@given(st.integers(1, 30), st.integers(1, 12), st.integers(1, 40))
def test_local_steps_begin_as_epochs_do(num_examples: int, batch_size: int, steps: int):
    epochs = drawn(num_examples, Recipe(local_epochs=40, batch_size=batch_size))
    cycled = drawn(num_examples, Recipe(local_steps=steps, batch_size=batch_size))
    assert cycled == epochs[:steps]


def test_epochs_are_shuffled_anew_and_by_the_seed():
    recipe = Recipe(local_epochs=2, batch_size=50)
    first, second = drawn(50, recipe)
    assert first != second
    assert drawn(50, recipe, seed=1)[0] != first


@pytest.mark.parametrize("n", [1, 3, 4, 5, 8, 9, 11])
def test_only_a_short_last_batch_is_left_out_and_never_the_only_one(n: int):
    recipe = Recipe(batch_size=4, local_epochs=3, drop_last=True)
    batches = drawn(n, recipe)
    assert len(batches) == num_steps(n, recipe) == 3 * max(1, n // 4)
    assert {len(batch) for batch in batches} == {min(n, 4)}
    assert all(len(set(batch)) == len(batch) for batch in batches)


def test_batch_norm_on_a_last_batch_of_one_is_refused_with_the_setting_that_leaves_it_out(tmp_path):
    settings = {
        "rounds": 1,
        "method.name": "fedavg",
        "risk.name": "none",
        "population.holdout": 0.0,
        "train.batch_size": 4,
    }
    clients = [(torch.randn(n, 4), torch.arange(n) % 3) for n in (9, 8)]
    with pytest.raises(ModelError, match=r"BatchNorm.*set train.drop_last = true"):
        run(normalised, clients, settings, tmp_path / "run")
