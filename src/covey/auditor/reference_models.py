"""Models with and without each record: trained here, or brought."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from jaxtyping import Bool
from numpy import ndarray

from covey.auditor.answers import Model, answers_of
from covey.auditor.records import Records
from covey.build.plugins import user_function
from covey.data import Examples, to_floats
from covey.errors import ConfigError
from covey.membership.audit_set import Candidates
from covey.membership.references import halves, reference_sets
from covey.rng import Streams
from covey.types import Params

__all__ = ["References", "Train", "ready", "trained"]

Train = Callable[[Examples, int], Model]
"""Trains a model like the audited one on these examples, with this seed."""


@dataclass(frozen=True, slots=True, eq=False)
class References:
    """Reference models, as what they say of every record.

    Attributes:
        answers: of each model.
        inside: which candidate each was trained on.
    """

    answers: tuple[Params, ...]
    inside: Bool[ndarray, "candidates models"]


Provide = Callable[[Candidates, Streams], References]
"""Provides the references, once it is known who is judged."""


def trained(
    train: Train, count: int, records: Records, observe: Callable[[int], None]
) -> Provide:
    """Let somebody's function train on random halves of the candidates.

    Every model gets as many records as there are members, and each candidate is in half
    of them. torch's global generator is seeded around every call.

    Raises:
        ConfigError: fewer than 2 models are wanted.
    """
    if count < 2:
        raise ConfigError(
            f"num_references must be at least 2, so that every record has a model that "
            f"learnt it and one that did not; found {count}."
        )
    made = user_function("function that trains references", train)

    def provide(candidates: Candidates, streams: Streams) -> References:
        inside = halves(candidates, count, streams)
        answers: list[Params] = []
        for index, column in enumerate(inside.T):
            at = streams.at("reference", index)
            (numbers,) = reference_sets(candidates, column, at)
            seed = int(at.at("seed").generator().integers(2**31))
            with at.at("training").lent_to_torch():
                model = made(_seen(records.examples.take(numbers.inputs)), seed)
            answers.append(answers_of(checked_model(model), records.examples))
            observe(index + 1)
        return References(tuple(answers), inside)

    return provide


def ready(models: Sequence[Model], inside: Any, records: Records) -> Provide:  # noqa: ANN401
    """Take models that somebody has trained.

    Args:
        models: one at least.
        inside: per record, members first and in the order that they came, and per model,
            whether the model was trained on it.
        records: who may be judged.

    Raises:
        ConfigError: the mask has another shape, or holds other values.
    """
    mask = np.asarray(inside)
    wanted = (len(records.places) + records.shared, len(models))
    if not models or mask.shape != wanted or not np.isin(mask, (0, 1)).all():
        raise ConfigError(
            f"references must be (models, inside): at least one model, and True or False "
            f"per record (members, then non-members) and model, shape {wanted}, found "
            f"{len(models)} models and {mask.dtype} of shape {mask.shape}. Correct them."
        )
    in_order = mask.astype(bool)[records.places]

    def provide(candidates: Candidates, _: Streams) -> References:
        answers = tuple(
            answers_of(checked_model(each), records.examples) for each in models
        )
        return References(answers, in_order[candidates.examples.inputs.numpy()])

    return provide


def _seen(examples: Examples) -> Examples:
    return Examples(to_floats(examples.inputs), examples.labels)


def checked_model(found: Any) -> Model:  # noqa: ANN401 - whatever a user returns
    """Refuse what can answer nothing.

    Raises:
        ConfigError: it is neither a module nor a function.
    """
    if not callable(found):
        raise ConfigError(
            f"A model must be an nn.Module, or a function from inputs to class scores, "
            f"found a {type(found).__name__}. Return or pass one."
        )
    return cast(Model, found)
