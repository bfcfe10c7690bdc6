"""`covey.audit_model`: a run's attacks, controls and refusals, for any classifier."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn

from covey.auditor.answers import Model, answers_of, diverged_reason
from covey.auditor.examination import Examination, too_few, without_figures
from covey.auditor.records import Records, records_of
from covey.auditor.reference_models import (
    Provide,
    Train,
    checked_model,
    ready,
    trained,
)
from covey.auditor.result import ModelAudit
from covey.errors import ConfigError
from covey.membership import Scorer
from covey.rng import Streams
from covey.runtime import DEFAULT_ATTACKS, named_attack

__all__ = ["audit_model"]


def audit_model(  # noqa: PLR0913 - nobody gives all of them
    model: Model,
    members: Any,  # noqa: ANN401 - whatever `covey.run` takes of one client
    non_members: Any,  # noqa: ANN401
    references: Train | tuple[Sequence[Model], Any] | None = None,
    *,
    num_references: int = 8,
    attacks: Sequence[str | Scorer] = DEFAULT_ATTACKS,
    label: str = "",
    seed: int = 0,
    observe: Callable[[int], None] = lambda _: None,
) -> ModelAudit:
    """Attack a classifier: can the records that it learnt be told from others?

    Args:
        model: a module or a function that gives a row of class scores per input: logits,
            log-probabilities or probabilities.
        members: what it was trained on, as `covey.run` takes one client's data: (inputs,
            labels) as tensors or arrays, a table, a data set. uint8 are images, which
            the model sees in [0, 1].
        non_members: the same, of records that it was not trained on but could have been.
        references: `train(examples, seed)`, which returns a model trained like this one
            on the tensors examples.inputs and examples.labels, and is called on random
            halves of both sides; or (models, inside), models that are there and, per
            record (members, then non-members) and model, whether it was trained on it.
            None: only attacks that need none.
        num_references: how often `train` is called; at least 2, better 8 or more.
        attacks: as `covey.audit` takes them, but for those on clients' updates.
        label: the column of labels, where the records are tables.
        seed: of all that is drawn here.
        observe: called with the number of references trained so far.

    Returns:
        Figures with 95% intervals, or the reason why there are none: sides that differ
        without the model, too few records, a model that diverged.

    Raises:
        CoveyError: something does not fit.
    """
    records = records_of(members, non_members, label)
    if reason := too_few(records):
        return without_figures(records, reason)
    answers = answers_of(checked_model(model), records.examples)
    examination = Examination(
        records=records,
        answers=answers,
        attacks=_attacks(attacks),
        provide=_provider(references, num_references, records, observe),
        streams=Streams(seed).at("audit of a model"),
    )
    return examination.result(diverged_reason(model, answers))


def _attacks(asked: Sequence[str | Scorer]) -> Mapping[str, Scorer]:
    for name in ("fedmia", "source", "weights"):
        if name in asked:
            raise ConfigError(
                f"The attack {name} looks at the clients and clusters of a run, and one "
                f"model has none. Leave it out, or audit a run: covey audit RUN."
            )
    return dict(map(named_attack, asked))


def _provider(
    references: Train | tuple[Sequence[Model], Any] | None,
    count: int,
    records: Records,
    observe: Callable[[int], None],
) -> Provide | None:
    if references is None:
        return None
    if isinstance(references, tuple) and len(references) == 2:
        return ready(references[0], references[1], records)
    if not callable(references) or isinstance(references, nn.Module):
        raise ConfigError(
            f"references must be a function train(examples, seed) that returns a model, "
            f"or (models, inside), found a {type(references).__name__}. Pass one of them."
        )
    return trained(references, count, records, observe)
