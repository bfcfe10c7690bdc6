"""`covey.audit_model`: a run's attacks, controls and refusals, for any classifier."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast, get_args

import numpy as np
import safetensors.torch
import torch
from jaxtyping import Bool, Float
from joblib import Parallel, delayed
from numpy import ndarray
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy

from covey.auditor.records import Records, records_of
from covey.auditor.result import KNOWS, Control, ModelAudit
from covey.base.arguments import in_range, place, usable
from covey.base.components import Count, Positive
from covey.base.errors import ConfigError, DataError, ModelError, blamed, user_function
from covey.base.files import make_folder, replace_whole
from covey.base.names import Params
from covey.base.params import not_finite
from covey.base.rng import Streams
from covey.data.examples import Examples, to_floats
from covey.engine.protocol import Scored, ScoringJob, TrainingJob, scored
from covey.engine.recipe import MULTICLASS
from covey.membership.attacks import Knowledge, Needs, Scorer, Signals, of_label
from covey.membership.audit import NO_REFERENCE, accuracies, attack_figures, scored_by
from covey.membership.controls import negative_control
from covey.membership.intervals import MIN_RECORDS, tail_rate
from covey.membership.references import exposed_counts, halves, record_exposures, reference_sets
from covey.membership.truth import (
    Candidates,
    NonMembers,
    beats_chance,
    blind_risk,
    has_non_finite_values,
    no_better_than_guessing,
    refusal_reason,
    strata_of,
)
from covey.membership.weights_attack import LayerAttack, layer_scores
from covey.models.build import copied, model_outputs
from covey.runs.auditing import DEFAULT_ATTACKS, check_attacks, named_attack

AuditedModel = nn.Module | Callable[[Tensor], Tensor]
"""Gives a row of class scores per input: logits, log-probabilities or probabilities."""

_BATCH = 256
"""Inputs that a model gets at once."""

_PER_EXAMPLE = 32
"""Inputs whose gradients are computed at once."""

_LOG_PROBS = "answers"

OF_LAYERS: tuple[LayerAttack, ...] = get_args(LayerAttack)
"""Attacks on the last layer, which is more than `Signals` hold."""

MODEL_ATTACKS = (*DEFAULT_ATTACKS, "bavaria", "inverse-hessian")
"""The attacks of an audit that names none."""


_MIN_MODELS = 4
"""References below which it is not known how much a record's figures scatter."""

_HOLDOUTS = NonMembers(())

_REMEDY = (
    "Take non-members from where the members come from: split one data set at random "
    "before training"
)

_NO_REFERENCES = (
    "withheld: it learns from reference models, and there are none. Pass references, or a "
    "function that trains them (--train)"
)

_NO_MODULE = (
    "withheld: it looks into the model, and its answers alone are known. Pass the nn.Module"
)


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


def answers_of(model: AuditedModel, examples: Examples) -> Params:
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
            f"The model must give scores for at least {needed} classes, found {outputs.shape[1]} "
            f"per input: return a column per class, for one x torch.stack([0 * x, x], dim=1)."
        )
    return {_LOG_PROBS: _log_probs(outputs)}


def _log_probs(outputs: Float[Tensor, "records classes"]) -> Float[Tensor, "records classes"]:
    """Return log-probabilities; rows that are probabilities already are not scores."""
    sums = outputs.sum(dim=1)
    if bool((outputs >= 0).all()) and bool(((sums - 1).abs() < 1e-3).all()):
        return outputs.clamp_min(torch.finfo(torch.float32).tiny).log()
    return outputs.log_softmax(dim=1)


def gradients_of(model: nn.Module, examples: Examples) -> Iterator[Params]:
    """Yield the gradient of every example's cross-entropy, in evaluation mode, of a copy."""
    module = copied(model).eval()
    params = {name: parameter.detach() for name, parameter in module.named_parameters()}
    place = next(iter(params.values()), torch.empty(0)).device

    def loss(params: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(functional_call(module, params, (x[None],)), y[None])

    example_gradients = vmap(grad(loss), in_dims=(None, 0, 0))
    parts = examples.inputs.split(_PER_EXAMPLE), examples.labels.split(_PER_EXAMPLE)
    for x, y in zip(*parts, strict=True):
        gradients = example_gradients(params, to_floats(x).to(place), y.to(place))
        yield from ({n: g[i].cpu() for n, g in gradients.items()} for i in range(len(y)))


_Workers = Positive | Literal[-1]
Train = Callable[[Examples, int], AuditedModel]
"""Trains a model like the audited one on these examples, with this seed."""


def _made(
    train: Train,
    inside: Bool[ndarray, "candidates models"],
    records: Records,
    candidates: Candidates,
    streams: Streams,
    workers: int,
    folder: Path | None,
    observe: Callable[[int], None],
) -> list[Params]:
    """Let a function train references, each on as many records as there are members.

    What each says is kept as soon as it is known, so that none is trained twice.
    """
    function = user_function("function that trains references", train)
    at = [streams.at("reference", index) for index in range(inside.shape[1])]
    names = [f"{records.digest}-{place.digest().hex()[:16]}.safetensors" for place in at]
    paths = [folder and folder / name for name in names]
    answers = dict[int, Params]()
    for index, path in enumerate(paths):
        if path and path.exists():
            with blamed(DataError, f"{path} must hold a reference's answers, but it", "delete it."):
                answers[index] = safetensors.torch.load_file(path)
    missing = [index for index in range(len(at)) if index not in answers]
    jobs = (delayed(_trained)(function, records, candidates, inside[:, i], at[i]) for i in missing)
    trained = cast(Iterator[Params], Parallel(n_jobs=workers, return_as="generator")(jobs))
    for index, new in zip(missing, trained, strict=True):
        answers[index] = new
        if path := paths[index]:
            make_folder(path.parent)
            replace_whole(path, safetensors.torch.save(dict(new)))
        observe(len(answers))
    return [answers[index] for index in range(len(at))]


def _trained(
    train: Train,
    records: Records,
    candidates: Candidates,
    inside: Bool[ndarray, " candidates"],
    streams: Streams,
) -> Params:
    """Train one reference, torch's global generator being seeded, and return its answers."""
    (numbers,) = reference_sets(candidates, inside, streams)
    seed = int(streams.at("seed").generator().integers(2**31))
    examples = records.examples.take(numbers.inputs)
    with streams.at("training").lent_to_torch():
        model = train(Examples(to_floats(examples.inputs), examples.labels), seed)
    return answers_of(_checked_model(model), records.examples)


def _checked_model(model: Any) -> AuditedModel:  # noqa: ANN401 - whatever a user returns
    """Refuse what can answer nothing.

    Raises:
        ConfigError: it is neither a module nor a function.
    """
    if not callable(model):
        raise ConfigError(
            f"A model must be an nn.Module, or a function from inputs to class scores, found a "
            f"{type(model).__name__}: return or pass one."
        )
    return cast(AuditedModel, model)


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


_ENGINE = _Answers()


def _refusal(
    records: Records, answers: Params, diverged: str, streams: Streams
) -> tuple[str, dict[str, Control]]:
    """Return the first reason why there can be no figures, "" if there can, and the control.

    Args:
        records: of both sides.
        answers: the model's, for all records.
        diverged: why there is no model, as `has_non_finite_values` says it; "": there is one.
        streams: of the audit.
    """
    if diverged:
        return f"the model {diverged}", {}
    if why := no_better_than_guessing(
        _ENGINE, answers, [records.numbers], examples_name="the members"
    ):
        return (
            f"the model {why}. Prepare inputs as in training, and number the classes "
            f"alike: whatever answers nothing looks private, and is no model"
        ), {}
    blind = blind_risk((records.sides,), _HOLDOUTS, streams.at("inputs"))
    if blind is None:
        return "", {}
    differs = beats_chance(blind)
    control = {"blind": Control(blind.figure, blind.auc, holds=not differs)}
    return f"{refusal_reason(blind)}. {_REMEDY}" if differs else "", control


def _scores(
    attacks: Mapping[str, Scorer | None],
    module: nn.Module | None,
    signals: Signals,
    examples: Examples,
    member: Bool[ndarray, " judged"],
    no_references: str,
) -> tuple[dict[str, Float[ndarray, " judged"]], dict[str, str]]:
    """Return what each attack says of each record, and why others are withheld.

    Args:
        attacks: by name; None: of the last layer.
        module: the model, if it can be looked into.
        signals: of those who are judged.
        examples: theirs, and after them those of all other members.
        member: which of the judged are members.
        no_references: why there are no references, if there are none.
    """
    scores, withheld = dict[str, ndarray](), dict[str, str]()
    everyone = torch.ones(len(examples), dtype=torch.bool)
    everyone[: len(member)] = torch.from_numpy(member)
    for name, attack in attacks.items():
        if why := _missing(attack, signals, module, no_references):
            withheld[name] = why
        elif attack is not None:
            scores[name] = scored_by(name, attack, signals)
        elif module is not None:
            own, by = copied(module).cpu().eval(), cast(LayerAttack, name)
            try:
                layer = layer_scores(by, own, examples, everyone)
            except ConfigError as error:
                withheld[name] = f"withheld: {error}"
            else:
                scores[name] = layer[: len(member)].numpy()
    return scores, withheld


def _knows(name: str, attack: Scorer | None) -> Knowledge:
    """Return what an attack's attacker has."""
    if attack is None:
        return "all-others" if name == "inverse-hessian" else "weights"
    return "weights" if _needs(attack) == "gradients" else "outputs"


def _needs(attack: Scorer) -> Needs:
    own: Any = getattr(attack, "__wrapped__", attack)  # a user's is wrapped
    return getattr(own, "needs", "both")


def _missing(
    attack: Scorer | None, signals: Signals, module: nn.Module | None, no_references: str
) -> str:
    """Say what an attack lacks on this model with these references; "" if nothing."""
    needs = "gradients" if attack is None else _needs(attack)
    if needs in ("none", "gradients"):
        return _NO_MODULE if needs == "gradients" and module is None else ""
    if not signals.inside.shape[1]:
        return no_references
    fewest = getattr(getattr(attack, "__wrapped__", attack), "fewest", 1)
    outside, inside = (side.sum(axis=1).min() for side in (~signals.inside, signals.inside))
    if outside >= fewest and (needs == "outside" or inside >= fewest):
        return ""
    also = "" if needs == "outside" else " and as many that were"
    return (
        f"withheld: it needs, for every record, {fewest} of the references that were not trained "
        f"on it{also} (the offline attacks need the former alone)"
    )


def audit_model(  # noqa: PLR0913 - most have defaults
    model: AuditedModel,
    members: Any,  # noqa: ANN401 - whatever `covey.run` takes of one client
    non_members: Any,  # noqa: ANN401
    references: Train | tuple[Sequence[AuditedModel], Any] | None = None,
    *,
    num_references: int = 8,
    attacks: Sequence[str | Scorer] = MODEL_ATTACKS,
    knowledge: Knowledge = "outputs",
    label: str = "",
    groups: Iterable[object] | None = None,
    seed: int = 0,
    workers: int = 1,
    folder: str | Path | None = None,
    observe: Callable[[int], None] = lambda _: None,
) -> ModelAudit:
    """Attack a classifier: can the records that it learnt be distinguished from others?

    Args:
        model: a module or a function that gives a row of class scores per input: logits,
            log-probabilities or probabilities.
        members: what it was trained on: (inputs, labels) as tensors or arrays, a table, a
            data set, a loader of one, which is read in the data set's order, anything that
            yields (input, label). uint8 are images, which the model sees in [0, 1].
        non_members: the same, of records that it was not trained on but could have been.
        references: `train(examples, seed)`, which returns a model trained like this one
            on the tensors examples.inputs and examples.labels, and is called on random
            halves of both sides; or (models, inside), models that are there and, per
            record (members, then non-members) and model, whether it was trained on it.
            None: only attacks that need none.
        num_references: how often `train` is called; at least 2, better 8 or more.
        attacks: as `covey.audit` takes them, but for those on clients' updates; also
            "inverse-hessian" and "weights" on the last layer of a module, and
            "ridge-weights" where that layer was solved for squares.
        knowledge: what the attackers that the verdict is about have at most: "outputs",
            "weights" for the model itself, or "all-others" for all other members, too. With
            those a record is recognised in nearly every model that has converged.
        label: the column of labels, where the records are tables.
        groups: of each record (members, then non-members) to which group it belongs.
        seed: of all that is drawn here.
        workers: processes that call `train`; -1: one on every core. No figure depends on
            it, unless training depends on the number of torch's threads.
        folder: where each reference's answers are kept, so that an audit that is cut off
            goes on from there. They belong to the records, the seed and the number; take
            another folder for another `train`.
        observe: called with the number of references trained so far.

    Returns:
        Figures with 95% intervals, or the reason why there are none: sides that differ
        without the model, too few records, a model that diverged.

    Raises:
        CoveyError: something does not fit.
    """
    num_references = in_range("num_references", num_references, Positive)
    seed, workers = in_range("seed", seed, Count), in_range("workers", workers, _Workers)
    check_attacks(attacks)
    by_place = references is not None or groups is not None
    records = records_of(members, non_members, label, by_place=by_place)
    if reason := records.too_few():
        return records.without_figures(reason)
    if knowledge not in KNOWS:
        raise ConfigError(
            f"knowledge must be one of {', '.join(KNOWS)}, found {knowledge!r}: name one."
        )
    answers = answers_of(_checked_model(model), records.examples)
    for name in ("fedmia", "source"):
        if name in attacks:
            raise ConfigError(
                f"The attack {name} needs the clients and clusters of a run, found one model: "
                f"leave it out, or audit a run: covey audit RUN."
            )
    chosen: dict[str, Scorer | None] = dict.fromkeys(n for n in OF_LAYERS if n in attacks)
    chosen |= dict(named_attack(attack) for attack in attacks if attack not in OF_LAYERS)
    _check_references(references, num_references, records)
    offered = len(records.places) + records.shared
    named = [""] * offered if groups is None else _by_row(groups, members, non_members)
    if len(named) != offered:
        raise DataError(
            f"groups must name a group of each of the {offered} records, members, then "
            f"non-members, found {len(named)}: name one for each."
        )
    names = np.array([str(name) for name in named])[records.places]
    module = model if isinstance(model, nn.Module) else None
    states = (module.state_dict() if module else {}), answers
    diverged = next(filter(None, map(has_non_finite_values, states)), "")
    streams = Streams(seed).at("audit of a model")
    reason, controls = _refusal(records, answers, diverged, streams)
    candidates = Candidates.of(strata_of((records.numbers,), _HOLDOUTS, streams))
    if reason or candidates is None:
        return replace(records.without_figures(reason), controls=controls)
    unseen = records.numbers.holdout
    if len(unseen) >= 2 * MIN_RECORDS:
        control = negative_control(_ENGINE, answers, unseen, streams.at("negative control"))
        near = abs(control.risk - 0.5) <= 3 * control.standard_error
        controls["unseen"] = Control(control.figure, control.auc, holds=near)

    inside, theirs = np.zeros((len(candidates.labels), 0), dtype=bool), list[Params]()
    if isinstance(references, tuple):
        known = np.asarray(references[1]).astype(bool)[records.places]
        inside = known[candidates.examples.inputs.numpy()]
        theirs = [
            answers_of(_checked_model(reference), records.examples) for reference in references[0]
        ]
    elif references is not None:
        inside = halves(candidates, num_references, streams)
        answers_folder = None if folder is None else place("folder", folder)
        with usable(answers_folder) if answers_folder else nullcontext():
            theirs = _made(
                references, inside, records, candidates, streams, workers, answers_folder, observe
            )
    no_references = _NO_REFERENCES
    if any(map(not_finite, theirs)):
        inside, theirs, no_references = inside[:, :0], list[Params](), NO_REFERENCE
    numbers = candidates.examples.inputs
    tables = [params[_LOG_PROBS][numbers].numpy() for params in (answers, *theirs)]
    judged = records.examples.take(numbers)
    signals = Signals(
        labels=candidates.labels,
        target=tables[0],
        references=np.stack(tables, axis=1)[:, 1:],
        inside=inside,
        gradients=module and (lambda: gradients_of(module, judged)),
    )
    background = [records.examples.take(stratum.background.inputs) for stratum in candidates.strata]
    pool = Examples.joined([judged, *background])
    scores, withheld = _scores(chosen, module, signals, pool, candidates.member, no_references)
    try:  # all members are one holder's
        exposed = exposed_counts(signals, candidates.member, np.zeros(len(numbers), dtype=np.int64))
    except ConfigError:  # references that were passed, half of which miss a record's side
        exposed = None
    own = None if groups is None else names[numbers.numpy()]
    losses = of_label(signals.target, signals.labels)
    return ModelAudit(
        members=int(candidates.member.sum()),
        non_members=int((~candidates.member).sum()),
        background=len(pool) - len(judged),
        shared=records.shared,
        references=len(theirs),
        withheld=withheld,
        controls=controls,
        accuracies=accuracies(signals, candidates.member),
        attacks={
            name: attack_figures(score, candidates, signals, streams.at("verdict"), own)
            for name, score in scores.items()
        },
        knows={name: _knows(name, chosen[name]) for name in scores},
        knowledge=knowledge,
        tail=tail_rate(candidates.sides(losses, np.ones(len(losses), dtype=bool))),
        exposures=_exposures(records, candidates, signals),
        exposed=exposed,
    )


def _by_row(groups: Iterable[object], *sides: Any) -> list[object]:  # noqa: ANN401
    """Return groups in the order of the sides' rows, where all of them name these.

    A column of a table lies in the table's order, and the sides are often drawn out of it.
    """
    if not all(hasattr(values, "iloc") for values in (groups, *sides)):
        return list(groups)
    column: Any = groups
    rows = [name for side in sides for name in side.index]
    if len({*rows}) == len(rows) and {*rows} == {*column.index}:
        column = column.loc[rows]
    return list(column)


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
                f"references must be (models, inside), one model or more, and True or False per "
                f"record (members, then non-members) and model, shape {expected}, found "
                f"{len(models)} models and {inside.dtype} of shape {inside.shape}: correct them."
            )
    elif not callable(references) or isinstance(references, nn.Module):
        raise ConfigError(
            f"references must be a function train(examples, seed) that returns a model, or "
            f"(models, inside), found a {type(references).__name__}: pass one of them."
        )
    elif count < 2:
        raise ConfigError(
            f"num_references must be 2 or more, so that every record is learnt by a model and not "
            f"by another, found {count}: raise it."
        )
