"""What a task asks of a model, by hand; and that every engine asks the same."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import nn

from covey import (
    DataError,
    Engine,
    Examples,
    Recipe,
    ReferenceEngine,
    ScoringJob,
    Streams,
    Task,
    TrainingJob,
)
from covey.engine.cpu import ParallelEngine
from covey.engine.optimizers import Sgd
from covey.engine.protocol import scored
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
    found = scored(outputs, labels, TOKENS)
    assert found.num_tokens is not None
    assert found.num_tokens.tolist() == [2, 1]
    assert found.accuracy == 0.25  # of examples, not 1 of 3 tokens
    assert found.log_probs is None


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
    (found,), (expected,) = list(fast.train([work])), list(slow.train([work]))
    torch.testing.assert_close(dict(found), dict(expected), rtol=0, atol=1e-6)
    assert not torch.equal(found["weight"], work.start["weight"])
    asked = [ScoringJob(found, work.examples)]
    (told,), (truth,) = fast.score(asked), slow.score(asked)
    for name in ("losses", "predictions", "correct", "log_probs", "num_tokens"):
        left, right = getattr(told, name), getattr(truth, name)
        assert (left is None) == (right is None)
        if right is not None:
            torch.testing.assert_close(left, right, rtol=0, atol=1e-6)
