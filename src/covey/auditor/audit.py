"""`covey.audit_model`: a run's attacks, controls and refusals, for any classifier."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Bool, Float, Shaped
from numpy import ndarray
from torch import Tensor, nn

from covey.auditor.records import Records, records_of
from covey.auditor.result import Control, ModelAudit
from covey.base.errors import ConfigError, ModelError
from covey.base.names import Params
from covey.base.params import not_finite
from covey.base.risk import DIVERGED, RiskEstimate
from covey.base.rng import Streams
from covey.build.training import user_function
from covey.data.examples import Examples, to_floats
from covey.engine.protocol import Scored, ScoringJob, TrainingJob, model_outputs, scored
from covey.engine.recipe import MULTICLASS
from covey.membership.attacks import Scorer, Signals
from covey.membership.audit import NO_REFERENCE, AttackFigures, attack_figures, scored_by
from covey.membership.controls import negative_control
from covey.membership.intervals import MIN_RECORDS
from covey.membership.references import (
    ExposedCounts,
    exposed_counts,
    halves,
    record_exposures,
    reference_sets,
)
from covey.membership.truth import (
    Candidates,
    Reference,
    beats_chance,
    blind_risk,
    no_better_than_guessing,
    refusal_reason,
    strata_of,
)
from covey.models.build import copied
from covey.runtime.auditing import DEFAULT_ATTACKS, named_attack

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
            scored(job.params[LOG_PROBS][job.examples.inputs], job.examples.labels, MULTICLASS)
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


def _log_probs(outputs: Float[Tensor, "records classes"]) -> Float[Tensor, "records classes"]:
    """Return log-probabilities; rows that are probabilities already are not scores."""
    sums = outputs.sum(dim=1)
    if bool((outputs >= 0).all()) and bool(((sums - 1).abs() < 1e-3).all()):
        return outputs.clamp_min(torch.finfo(torch.float32).tiny).log()
    return outputs.log_softmax(dim=1)


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


def trained(train: Train, count: int, records: Records, observe: Callable[[int], None]) -> Provide:
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
        answers = tuple(answers_of(checked_model(each), records.examples) for each in models)
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


MIN_MODELS = 4
"""References below which nobody knows how much a record's figures scatter."""


def exposures_of(
    records: Records, candidates: Candidates, signals: Signals
) -> Float[ndarray, " all"] | None:
    """Return each member's exposure, in the order in which the members came.

    NaN of members that are not judged; None where the references cannot say.
    """
    inside = signals.inside
    both_sides = (inside.any(axis=1) & ~inside.all(axis=1)).all()
    if inside.shape[1] < MIN_MODELS or not both_sides:
        return None
    chosen = candidates.member
    numbers = candidates.examples.inputs.numpy()[chosen]
    found = np.full(records.brought, np.nan)
    found[records.places[numbers]] = record_exposures(signals)[chosen]
    return found


def exposed_of(candidates: Candidates, signals: Signals) -> ExposedCounts | None:
    """Return how exposed the most exposed 1% are, all members being one holder's."""
    owner = np.zeros(len(candidates.member), dtype=np.int64)
    try:
        return exposed_counts(signals, candidates.member, owner)
    except ConfigError:  # brought references, half of which miss a record's side
        return None


HOLDOUTS = Reference(())
ENGINE = Answers()
REMEDY = (
    "Take non-members from where the members come from: split one data set at random "
    "before training"
)
NO_REFERENCES = (
    "withheld: it learns from reference models, and there are none. Pass references, or a "
    "function that trains them (--train)"
)
TOO_FEW = {
    "outside": "withheld: it needs a reference that was not trained on a record, for every record",
    "both": "withheld: it needs a reference that was trained on a record and one that was "
    "not, for every record (lira-offline and rmia-offline need the latter alone)",
}


@dataclass(frozen=True, slots=True, eq=False)
class Examination:
    """One audit under way.

    Attributes:
        answers: the model's, for all records.
        provide: None: there are no references.
    """

    records: Records
    answers: Params
    attacks: Mapping[str, Scorer]
    provide: Provide | None
    streams: Streams
    controls: dict[str, Control] = field(default_factory=dict[str, Control])

    def result(self, diverged: str) -> ModelAudit:
        """Return the figures, or the first reason why there can be none."""
        reason = diverged and f"{DIVERGED}: {diverged}"
        reason = reason or self._guessing() or self._mismatch()
        strata = strata_of((self.records.numbers,), HOLDOUTS, self.streams)
        candidates = Candidates.of(strata)
        if reason or candidates is None:
            return without_figures(self.records, reason, self.controls)
        return self._judged(candidates)

    def _guessing(self) -> str:
        why = no_better_than_guessing(
            ENGINE, self.answers, [self.records.numbers], whose="the members"
        )
        return why and (
            f"{DIVERGED}: {why}. Prepare inputs as in training, and number the classes "
            f"alike: whatever answers nothing looks private, and is no model"
        )

    def _mismatch(self) -> str:
        """Say why the sides do not match; "" if nothing shows that they do not."""
        at = self.streams.at("inputs")
        found = blind_risk((self.records.sides,), HOLDOUTS, at)
        if found is None:
            return ""
        differs = beats_chance(found)
        self.controls["blind"] = _control(found, holds=not differs)
        return f"{refusal_reason(found)}. {REMEDY}" if differs else ""

    def _judged(self, candidates: Candidates) -> ModelAudit:
        unseen = self.records.numbers.holdout
        if len(unseen) >= 2 * MIN_RECORDS:
            at = self.streams.at("negative control")
            found = negative_control(ENGINE, self.answers, unseen, at)
            near = abs(found.risk - 0.5) <= 3 * found.standard_error
            self.controls["unseen"] = _control(found, holds=near)
        provide = self.provide or _no_references
        told = provide(candidates, self.streams)
        withheld = {
            name: why for name, attack in self.attacks.items() if (why := _withheld(attack, told))
        }
        if _any_diverged(told):
            told = _no_references(candidates, self.streams)
        signals = _signals(self.answers, told, candidates)
        return ModelAudit(
            members=int(candidates.member.sum()),
            non_members=int((~candidates.member).sum()),
            background=sum(len(each.background) for each in candidates.strata),
            shared=self.records.shared,
            references=len(told.answers),
            reason="",
            withheld=withheld,
            controls=self.controls,
            accuracies=_accuracies(signals, candidates),
            attacks={
                name: self._figures(name, attack, candidates, signals)
                for name, attack in self.attacks.items()
                if name not in withheld
            },
            exposures=exposures_of(self.records, candidates, signals),
            exposed=exposed_of(candidates, signals),
        )

    def _figures(
        self, name: str, attack: Scorer, candidates: Candidates, signals: Signals
    ) -> AttackFigures:
        scores = scored_by(name, attack, signals)
        return attack_figures(scores, candidates, signals, self.streams.at("verdict"))


def too_few(records: Records) -> str:
    """Say that a side has too few records to be judged; "" if both have enough."""
    inside = int(records.member.sum())
    outside = len(records.member) - inside
    if min(inside, outside) >= MIN_RECORDS:
        return ""
    left = f", and {records.shared} on both sides" if records.shared else ""
    return (
        f"too few records: each side needs at least {MIN_RECORDS} that the other does not "
        f"hold, found {inside} members and {outside} non-members{left}. Bring more"
    )


def without_figures(
    records: Records, reason: str, controls: Mapping[str, Control] = MappingProxyType({})
) -> ModelAudit:
    """Return an audit that found nothing, and why."""
    return ModelAudit(
        members=int(records.member.sum()),
        non_members=int((~records.member).sum()),
        background=0,
        shared=records.shared,
        references=0,
        reason=reason,
        withheld={},
        controls=controls,
        accuracies={},
        attacks={},
    )


def _no_references(candidates: Candidates, _: Streams) -> References:
    return References((), np.zeros((len(candidates.labels), 0), dtype=bool))


def _any_diverged(references: References) -> bool:
    return any(map(not_finite, references.answers))


def _signals(answers: Params, references: References, judged: Candidates) -> Signals:
    numbers = judged.examples.inputs

    def asked(params: Params) -> np.ndarray:
        (table,) = params.values()
        return table[numbers].numpy()

    target = asked(answers)
    others = [asked(each) for each in references.answers]
    stacked = np.stack([target, *others], axis=1)[:, 1:]
    return Signals(judged.labels, target, stacked, references.inside)


def _withheld(attack: Scorer, references: References) -> str:
    """Say why an attack cannot be run with these references; "" if it can."""
    needs = getattr(attack, "needs", "both")
    if needs == "none":
        return ""
    if not references.answers:
        return NO_REFERENCES
    if _any_diverged(references):
        return NO_REFERENCE
    outside = (~references.inside).any(axis=1).all()
    inside = references.inside.any(axis=1).all()
    enough = outside and (inside or needs == "outside")
    return "" if enough else TOO_FEW[needs]


def _accuracies(signals: Signals, judged: Candidates) -> dict[str, float]:
    right = signals.target.argmax(axis=1) == signals.labels
    found = {
        "members": float(right[judged.member].mean()),
        "non_members": float(right[~judged.member].mean()),
    }
    if signals.references.size:
        theirs = signals.references.argmax(axis=2) == signals.labels[:, None]
        for side, chosen in (("inside", signals.inside), ("outside", ~signals.inside)):
            if chosen.any():
                found[f"references_{side}"] = float(theirs[chosen].mean())
    return found


def _control(found: RiskEstimate, *, holds: bool) -> Control:
    return Control(found.risk, found.standard_error, found.auc, holds)


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
