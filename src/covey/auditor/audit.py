"""`covey.audit_model`: a run's attacks, controls and refusals, for any classifier."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy import ndarray
from torch import Tensor, nn

from covey.auditor.records import Records, records_of
from covey.auditor.result import Control, ModelAudit
from covey.base.errors import ConfigError, ModelError
from covey.base.names import Params
from covey.base.params import not_finite
from covey.base.rng import Streams
from covey.base.user_code import user_function
from covey.data.examples import Examples, to_floats
from covey.engine.protocol import Scored, ScoringJob, TrainingJob, scored
from covey.engine.recipe import MULTICLASS
from covey.membership.attacks import Scorer, Signals
from covey.membership.audit import NO_REFERENCE, accuracies, attack_figures, scored_by
from covey.membership.controls import negative_control
from covey.membership.intervals import MIN_RECORDS
from covey.membership.references import exposed_counts, halves, record_exposures, reference_sets
from covey.membership.truth import (
    Candidates,
    Reference,
    beats_chance,
    blind_risk,
    no_better_than_guessing,
    refusal_reason,
    strata_of,
)
from covey.models.build import copied, model_outputs
from covey.runtime.auditing import DEFAULT_ATTACKS, named_attack

Model = nn.Module | Callable[[Tensor], Tensor]
"""Gives a row of class scores per input: logits, log-probabilities or probabilities."""

_BATCH = 256
"""Inputs that a model gets at once."""

_LOG_PROBS = "answers"


class _Answers:
    """An engine whose models are tables of answers, and whose inputs record numbers."""

    def train(self, jobs: Iterable[TrainingJob]) -> Iterator[Params]:
        """Train nothing: a table of answers cannot learn."""
        yield from (job.start for job in jobs)

    def score(self, jobs: Sequence[ScoringJob]) -> list[Scored]:
        """Look the answers up."""
        return [
            scored(job.params[_LOG_PROBS][job.examples.inputs], job.examples.labels, MULTICLASS)
            for job in jobs
        ]


def answers_of(model: Model, examples: Examples) -> Params:
    """Return log-probabilities of the classes of every example, as an engine's params.

    In evaluation mode, of a copy, on the device where the model lies. Members and others
    are passed in one mixed order, so that a model that mixes a batch reveals nothing by it.

    Raises:
        ModelError: the model raised, or gives no scores for these classes.
    """
    is_module = isinstance(model, nn.Module)
    module = copied(model).eval() if is_module else cast(nn.Module, model)
    place = next(module.parameters(), torch.empty(0)).device if is_module else "cpu"
    with torch.no_grad():
        outputs = torch.cat(
            [
                model_outputs(module, to_floats(part).to(place)).detach().cpu().double()
                for part in examples.inputs.split(_BATCH)
            ]
        )
    needed = max(2, 1 + int(examples.labels.max()) if len(examples) else 0)
    if outputs.shape[1] < needed:
        raise ModelError(
            f"The model must give a score for each of at least {needed} classes, found "
            f"{outputs.shape[1]} per input. Return one column per class; a single column "
            f"x for two classes is torch.stack([0 * x, x], dim=1)."
        )
    return {_LOG_PROBS: _log_probs(outputs)}


def _log_probs(outputs: Float[Tensor, "records classes"]) -> Float[Tensor, "records classes"]:
    """Return log-probabilities; rows that are probabilities already are not scores."""
    sums = outputs.sum(dim=1)
    if bool((outputs >= 0).all()) and bool(((sums - 1).abs() < 1e-3).all()):
        return outputs.clamp_min(torch.finfo(torch.float32).tiny).log()
    return outputs.log_softmax(dim=1)


Train = Callable[[Examples, int], Model]
"""Trains a model like the audited one on these examples, with this seed."""


@dataclass(frozen=True, slots=True, eq=False)
class _References:
    """Reference models, as what they say of every record.

    Attributes:
        answers: of each model.
        inside: which candidate each was trained on.
    """

    answers: tuple[Params, ...]
    inside: Bool[ndarray, "candidates models"]

    @property
    def diverged(self) -> bool:
        """Whether an answer of any is not finite."""
        return any(map(not_finite, self.answers))


def _referred(
    references: Train | tuple[Sequence[Model], Any] | None,
    count: int,
    records: Records,
    candidates: Candidates,
    streams: Streams,
    observe: Callable[[int], None],
) -> _References:
    """Return the models that were passed, or let a function train some on random halves.

    Every model gets as many records as there are members, and each candidate is in half
    of them. torch's global generator is seeded around every call.
    """
    if references is None:
        return _References((), np.zeros((len(candidates.labels), 0), dtype=bool))
    if isinstance(references, tuple):
        models, known = references
        passed = tuple(answers_of(_checked_model(each), records.examples) for each in models)
        of_records = np.asarray(known).astype(bool)[records.places]
        return _References(passed, of_records[candidates.examples.inputs.numpy()])
    made = user_function("function that trains references", references)
    inside = halves(candidates, count, streams)
    answers: list[Params] = []
    for index, column in enumerate(inside.T):
        at = streams.at("reference", index)
        (numbers,) = reference_sets(candidates, column, at)
        seed = int(at.at("seed").generator().integers(2**31))
        examples = records.examples.take(numbers.inputs)
        with at.at("training").lent_to_torch():
            model = made(Examples(to_floats(examples.inputs), examples.labels), seed)
        answers.append(answers_of(_checked_model(model), records.examples))
        observe(index + 1)
    return _References(tuple(answers), inside)


def _checked_model(model: Any) -> Model:  # noqa: ANN401 - whatever a user returns
    """Refuse what can answer nothing.

    Raises:
        ConfigError: it is neither a module nor a function.
    """
    if not callable(model):
        raise ConfigError(
            f"A model must be an nn.Module, or a function from inputs to class scores, "
            f"found a {type(model).__name__}. Return or pass one."
        )
    return cast(Model, model)


_MIN_MODELS = 4
"""References below which it is not known how much a record's figures scatter."""


def _exposures(
    records: Records, candidates: Candidates, signals: Signals
) -> Float[ndarray, " all"] | None:
    """Return each member's exposure, in the order in which the members came.

    NaN of members that are not judged; None where the references cannot say.
    """
    inside = signals.inside
    both_sides = (inside.any(axis=1) & ~inside.all(axis=1)).all()
    if inside.shape[1] < _MIN_MODELS or not both_sides:
        return None
    chosen = candidates.member
    numbers = candidates.examples.inputs.numpy()[chosen]
    exposures = np.full(records.offered, np.nan)
    exposures[records.places[numbers]] = record_exposures(signals)[chosen]
    return exposures


_HOLDOUTS = Reference(())
_ENGINE = _Answers()
_REMEDY = (
    "Take non-members from where the members come from: split one data set at random "
    "before training"
)
_NO_REFERENCES = (
    "withheld: it learns from reference models, and there are none. Pass references, or a "
    "function that trains them (--train)"
)
_TOO_FEW = {
    "outside": "withheld: it needs a reference that was not trained on a record, for every record",
    "both": "withheld: it needs a reference that was trained on a record and one that was "
    "not, for every record (lira-offline and rmia-offline need the latter alone)",
}


def _judged(
    records: Records,
    answers: Params,
    attacks: Mapping[str, Scorer],
    provide: Callable[[Candidates, Streams], _References],
    streams: Streams,
    diverged: str,
) -> ModelAudit:
    """Return the figures, or the first reason why there can be none.

    Args:
        records: of both sides.
        answers: the model's, for all records.
        attacks: by name.
        provide: returns references, once it is known who is judged.
        streams: of the audit.
        diverged: what is not finite in the model; "": nothing.
    """
    controls: dict[str, Control] = {}
    reason = diverged and f"diverged: {diverged}"
    if not reason and (
        why := no_better_than_guessing(_ENGINE, answers, [records.numbers], whose="the members")
    ):
        reason = (
            f"diverged: {why}. Prepare inputs as in training, and number the classes "
            f"alike: whatever answers nothing looks private, and is no model"
        )
    if not reason and (blind := blind_risk((records.sides,), _HOLDOUTS, streams.at("inputs"))):
        differs = beats_chance(blind)
        controls["blind"] = Control(blind.figure, blind.auc, holds=not differs)
        reason = f"{refusal_reason(blind)}. {_REMEDY}" if differs else ""
    candidates = Candidates.of(strata_of((records.numbers,), _HOLDOUTS, streams))
    if reason or candidates is None:
        return replace(records.without_figures(reason), controls=controls)

    unseen = records.numbers.holdout
    if len(unseen) >= 2 * MIN_RECORDS:
        control = negative_control(_ENGINE, answers, unseen, streams.at("negative control"))
        near = abs(control.risk - 0.5) <= 3 * control.standard_error
        controls["unseen"] = Control(control.figure, control.auc, holds=near)
    models = provide(candidates, streams)
    withheld = {n: why for n, attack in attacks.items() if (why := _withheld(attack, models))}
    if models.diverged:
        models = _References((), models.inside[:, :0])
    numbers = candidates.examples.inputs
    tables = [params[_LOG_PROBS][numbers].numpy() for params in (answers, *models.answers)]
    signals = Signals(candidates.labels, tables[0], np.stack(tables, axis=1)[:, 1:], models.inside)
    try:  # all members are one holder's
        exposed = exposed_counts(
            signals, candidates.member, np.zeros(len(candidates.member), dtype=np.int64)
        )
    except ConfigError:  # references that were passed, half of which miss a record's side
        exposed = None
    return ModelAudit(
        members=int(candidates.member.sum()),
        non_members=int((~candidates.member).sum()),
        background=sum(len(each.background) for each in candidates.strata),
        shared=records.shared,
        references=len(models.answers),
        withheld=withheld,
        controls=controls,
        accuracies=accuracies(signals, candidates.member),
        attacks={
            name: attack_figures(
                *(scored_by(name, attack, signals), candidates, signals, streams.at("verdict"))
            )
            for name, attack in attacks.items()
            if name not in withheld
        },
        exposures=_exposures(records, candidates, signals),
        exposed=exposed,
    )


def _withheld(attack: Scorer, references: _References) -> str:
    """Say why an attack cannot be run with these references; "" if it can."""
    needs = getattr(attack, "needs", "both")
    if needs == "none":
        return ""
    if not references.answers:
        return _NO_REFERENCES
    if references.diverged:
        return NO_REFERENCE
    outside = (~references.inside).any(axis=1).all()
    inside = references.inside.any(axis=1).all()
    enough = outside and (inside or needs == "outside")
    return "" if enough else _TOO_FEW[needs]


def audit_model(  # noqa: PLR0913 - most have defaults
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
    """Attack a classifier: can the records that it learnt be distinguished from others?

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
    if reason := records.too_few():
        return records.without_figures(reason)
    answers = answers_of(_checked_model(model), records.examples)
    for name in ("fedmia", "source", "weights"):
        if name in attacks:
            raise ConfigError(
                f"The attack {name} looks at the clients and clusters of a run, and one "
                f"model has none. Leave it out, or audit a run: covey audit RUN."
            )
    chosen = dict(map(named_attack, attacks))
    _check_references(references, num_references, records)
    state = model.state_dict() if isinstance(model, nn.Module) else {}
    entry = not_finite(state) or not_finite(answers)
    diverged = f"its {entry} hold numbers that are not finite" if entry else ""
    streams = Streams(seed).at("audit of a model")

    def provide(candidates: Candidates, streams: Streams) -> _References:
        return _referred(references, num_references, records, candidates, streams, observe)

    return _judged(records, answers, chosen, provide, streams, diverged)


def _check_references(references: object, count: int, records: Records) -> None:
    """Refuse at once what cannot provide any references.

    Raises:
        ConfigError: it is no function, no models with who is in them, or too few of them.
    """
    if references is None:
        return
    if isinstance(references, tuple) and len(references) == 2:
        models, inside = references[0], np.asarray(references[1])
        expected = (len(records.places) + records.shared, len(models))
        if not models or inside.shape != expected or not np.isin(inside, (0, 1)).all():
            raise ConfigError(
                f"references must be (models, inside): at least one model, and True or False "
                f"per record (members, then non-members) and model, shape {expected}, found "
                f"{len(models)} models and {inside.dtype} of shape {inside.shape}. Correct them."
            )
    elif not callable(references) or isinstance(references, nn.Module):
        raise ConfigError(
            f"references must be a function train(examples, seed) that returns a model, "
            f"or (models, inside), found a {type(references).__name__}. Pass one of them."
        )
    elif count < 2:
        raise ConfigError(
            f"num_references must be at least 2, so that every record has a model that "
            f"learnt it and one that did not; found {count}."
        )
