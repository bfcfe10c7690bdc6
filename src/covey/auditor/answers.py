"""What a model says of every record, asked once; a table that can stand for the model."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from covey.data import Examples, to_floats
from covey.engine import MULTICLASS, Scored, ScoringJob, TrainingJob
from covey.engine.forward import model_outputs
from covey.engine.scoring import scored
from covey.errors import ModelError
from covey.models.instance import copied
from covey.params import not_finite
from covey.types import Params

__all__ = ["Answers", "Model", "answers_of", "diverged_reason"]

Model = nn.Module | Callable[[Tensor], Tensor]
"""Gives a row of class scores per input: logits, log-probabilities or probabilities."""

BATCH = 256
"""Inputs that a model is asked at once."""

LOG_PROBS = "answers"


class GivenFunction(nn.Module):
    """A function in the place of a module."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, inputs: Shaped[Tensor, "batch ..."]) -> Tensor:
        """Return what the function does."""
        return self.function(inputs)


class Answers:
    """An engine whose models are tables of answers, and whose inputs record numbers."""

    def train(self, jobs: Iterable[TrainingJob]) -> Iterator[Params]:
        """Train nothing: a table of answers cannot learn."""
        yield from (job.start for job in jobs)

    def score(self, jobs: Sequence[ScoringJob]) -> list[Scored]:
        """Look the answers up."""
        return [
            scored(
                job.params[LOG_PROBS][job.examples.inputs],
                job.examples.labels,
                MULTICLASS,
            )
            for job in jobs
        ]


def answers_of(model: Model, examples: Examples) -> Params:
    """Return log-probabilities of the classes of every example, as an engine's params.

    In evaluation mode, of a copy, on the device where the model lies. Members and others
    are asked in one mixed order, so that a model that mixes a batch tells nothing by it.

    Raises:
        ModelError: the model raised, or gives no scores for these classes.
    """
    module = model if isinstance(model, nn.Module) else GivenFunction(model)
    module = copied(module).eval() if isinstance(model, nn.Module) else module
    place = next(module.parameters(), torch.empty(0)).device
    with torch.no_grad():
        outputs = torch.cat(
            [
                model_outputs(module, to_floats(part).to(place)).detach().cpu().double()
                for part in examples.inputs.split(BATCH)
            ]
        )
    _check_classes(outputs, examples.labels)
    return {LOG_PROBS: _log_probs(outputs)}


def diverged_reason(model: Model, answers: Params) -> str:
    """Say which numbers of a model or of its answers are not finite; "" if all are."""
    state = model.state_dict() if isinstance(model, nn.Module) else {}
    entry = not_finite(state) or not_finite(answers)
    return f"its {entry} hold numbers that are not finite" if entry else ""


def _check_classes(
    outputs: Float[Tensor, "records classes"], labels: Shaped[Tensor, " records"]
) -> None:
    needed = max(2, 1 + int(labels.max()) if len(labels) else 0)
    if outputs.shape[1] < needed:
        raise ModelError(
            f"The model must give a score for each of at least {needed} classes, found "
            f"{outputs.shape[1]} per input. Return one column per class; a single column "
            f"x for two classes is torch.stack([0 * x, x], dim=1)."
        )


def _log_probs(
    outputs: Float[Tensor, "records classes"],
) -> Float[Tensor, "records classes"]:
    """Return log-probabilities; rows that are probabilities already are not scores."""
    sums = outputs.sum(dim=1)
    if bool((outputs >= 0).all()) and bool(((sums - 1).abs() < 1e-3).all()):
        return outputs.clamp_min(torch.finfo(torch.float32).tiny).log()
    return outputs.log_softmax(dim=1)
