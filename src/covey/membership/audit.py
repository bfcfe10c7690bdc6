"""Auditing one cluster model: controls first, then attacks, overall and by parts of the records."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from numpy import ndarray
from torch import Tensor

from covey.base.errors import ConfigError
from covey.base.figure import Figure
from covey.base.names import Params
from covey.base.params import subtract
from covey.base.rng import Streams
from covey.data.examples import Examples
from covey.engine.protocol import Engine, ScoringJob, TrainingJob
from covey.engine.recipe import Recipe
from covey.membership.attacks import MIN_OTHERS, Scorer, Signals, fedmia, of_label
from covey.membership.controls import blind_figure
from covey.membership.intervals import MIN_RECORDS, AttackMetrics, attack_metrics, roc
from covey.membership.references import (
    ExposedCounts,
    RetrainRecipe,
    exposed_counts,
    halves,
    train_references,
)
from covey.membership.truth import (
    Candidates,
    NonMembers,
    Target,
    blind_risk,
    has_non_finite_values,
    mismatch,
    strata_of,
)

QUARTERS = ("easiest", "easy", "hard", "hardest")


FEDMIA = "fedmia"
"""The attack on clients' updates, which are more than `Signals` hold."""

WEIGHTS = "weights"
"""The attack on the weights of a last layer, which needs no references."""

NO_CLASSES = (
    "withheld: these attacks need the log-probability of the true class, and the model's "
    "task has no single one per example; the audit at the run's end rests on "
    "losses alone, and stands"
)

NO_REFERENCE = (
    "withheld: a reference that plays the run's recipe again diverged, so that nothing "
    "shows how a model that learnt a record differs"
)


@dataclass(frozen=True, slots=True)
class AttackFigures:
    """What one attack achieves on one cluster model.

    Attributes:
        by_group: per index of a group; "" where the clients have no known group.
        by_class: per label.
        by_difficulty: per quarter of each group's records, from those that models know
            well without having seen them to those that they get wrong; empty where a
            record has no reference outside of it.
        roc: (FPR, TPR), FPR from 1 / non-members on.
    """

    overall: AttackMetrics
    by_group: Mapping[str, AttackMetrics]
    by_class: Mapping[str, AttackMetrics]
    by_difficulty: Mapping[str, AttackMetrics]
    roc: tuple[tuple[float, float], ...]


def attack_figures(
    scores: Float[ndarray, " records"],
    candidates: Candidates,
    signals: Signals,
    streams: Streams,
    groups: Shaped[ndarray, " records"] | None = None,
) -> AttackFigures:
    """Judge the scores, overall and in each part; thresholds are fitted in the part.

    Args:
        scores: of an attack.
        candidates: whose scores these are.
        signals: that it had.
        streams: of the folds.
        groups: the name of each candidate's group, in place of their strata.
    """

    def judged(among: Bool[ndarray, " records"], *name: str) -> AttackMetrics:
        return attack_metrics(candidates.sides(scores, among), streams.at(*name))

    everybody = np.ones(len(scores), dtype=bool)
    parts: dict[str, dict[str, AttackMetrics]] = {}
    for kind, name, among in _parts(candidates, signals, groups):
        parts.setdefault(kind, {})[name] = judged(among, kind, name)
    return AttackFigures(
        overall=judged(everybody, "overall"),
        by_group=parts["group"],
        by_class=parts["class"],
        by_difficulty=parts.get("difficulty", {}),
        roc=roc(candidates.sides(scores, everybody)),
    )


def quarters(candidates: Candidates, signals: Signals) -> Int[ndarray, " records"]:
    """Return 0 (easiest) to 3 by the mean loss under references outside of the record.

    Their loss does not depend on who is a member; ranked within each group.
    """
    losses = -of_label(signals.references, signals.labels)
    outside = losses.mean(axis=1, where=~signals.inside)
    from scipy.stats import rankdata

    result = np.zeros(len(outside), dtype=np.int64)
    for place in range(len(candidates.strata)):
        here = candidates.stratum == place
        ranks = rankdata(outside[here], method="ordinal") - 1
        result[here] = ranks * len(QUARTERS) // here.sum()
    return result


def _parts(
    candidates: Candidates, signals: Signals, groups: Shaped[ndarray, " records"] | None
) -> Iterator[tuple[str, str, Bool[ndarray, " records"]]]:
    for name in [] if groups is None else np.unique(groups):
        yield "group", str(name), groups == name
    for place, stratum in enumerate(candidates.strata if groups is None else ()):
        name = "" if stratum.group is None else str(stratum.group)
        yield "group", name, candidates.stratum == place
    for label in range(signals.target.shape[1]):
        yield "class", str(label), signals.labels == label
    if not (~signals.inside).any(axis=1).all():
        return
    quarter = quarters(candidates, signals)
    for index, name in enumerate(QUARTERS):
        yield "difficulty", name, quarter == index


@dataclass(frozen=True, slots=True, eq=False)
class Auditor:
    """Who attacks, and with what.

    Attributes:
        attacks: by name.
        from_updates: whether FedMIA attacks, too: every client trains once more from
            its cluster's model, and its own model is looked at.
        references: how many federations are played again: at least 2, or 0 where no
            attack but `from_weights` is made.
        observe: called with the cluster and the number of references played so far.
        from_weights: scores candidates by the weights of a last layer, by attack; None:
            not at all.
    """

    attacks: Mapping[str, Scorer]
    from_updates: bool
    references: int
    retrain_recipe: RetrainRecipe
    observe: Callable[[int, int], None]
    from_weights: (
        Callable[[Target, Candidates], Mapping[str, Float[ndarray, " records"]]] | None
    ) = None


@dataclass(frozen=True, slots=True)
class ClusterAuditResult:
    """An audit of one cluster model.

    Attributes:
        clients: those that use it and trained it: their records are the members.
        members, non_members: how many of each are judged.
        background: members without a partner among the non-members: every reference
            trains on them, and no client is judged by them.
        blind_auc: of a classifier that never sees the model.
        reason: why there are no figures, or what is missing; "" if nothing is.
        accuracies: of the model on its members and on non-members, and of the
            references on records that they trained on and on others. Where they are
            far apart, the references replay another recipe than the model's.
        exposed: the most exposed members in counts; None with too few references.
        unknown: why single overall figures are.
        diverged: whether there is no model to attack.
    """

    cluster: int
    clients: int
    members: int
    non_members: int
    background: int
    blind_auc: Figure
    reason: str
    accuracies: Mapping[str, float]
    attacks: Mapping[str, AttackFigures]
    exposed: ExposedCounts | None = None
    unknown: tuple[str, ...] = ()
    diverged: bool = False


def examine_cluster(
    engine: Engine, target: Target, reference: NonMembers, auditor: Auditor, streams: Streams
) -> ClusterAuditResult:
    """Attack one cluster model; no figures where it diverged, or sides do not match."""
    if why := target.diverged or has_non_finite_values(target.params):
        return _without_attacks(target, None, f"the model {why}", diverged=True)
    if not target.members:
        return _without_attacks(target, None, "no client both uses and trained this cluster")
    blind = blind_risk(target.members, reference, streams)
    auc = blind and blind.auc
    if refused := mismatch(target.members, reference, blind):
        return _without_attacks(target, auc, refused)
    candidates = Candidates.of(strata_of(target.members, reference, streams))
    if candidates is None:
        reason = f"fewer than {MIN_RECORDS} members or non-members in every group"
        return _without_attacks(target, auc, reason)
    one = _answers(engine, target.params, candidates.examples.first(1))
    signals = one is not None and _signals(engine, target, candidates, auditor, streams)
    if not signals:
        return _without_attacks(target, auc, NO_CLASSES if one is None else NO_REFERENCE)
    scores = {name: scored_by(name, run, signals) for name, run in auditor.attacks.items()}
    if auditor.from_weights is not None:
        scores |= auditor.from_weights(target, candidates)
    reason = ""
    if auditor.from_updates and len(target.members) > MIN_OTHERS:
        from_updates = _from_updates(engine, target, candidates, auditor, streams)
        scores |= {} if from_updates is None else {FEDMIA: from_updates}
        reason = f"{FEDMIA}: a client's one more round diverged" if from_updates is None else ""
    elif auditor.from_updates:
        reason = f"{FEDMIA} needs more than {MIN_OTHERS} clients in a cluster"
    return ClusterAuditResult(
        cluster=target.cluster,
        clients=len(target.members),
        members=int(candidates.member.sum()),
        non_members=int((~candidates.member).sum()),
        background=sum(len(stratum.background) for stratum in candidates.strata),
        blind_auc=blind_figure(auc),
        reason=reason,
        accuracies=accuracies(signals, candidates.member),
        attacks={
            name: attack_figures(score, candidates, signals, streams.at("verdict"))
            for name, score in scores.items()
        },
        exposed=exposed_counts(signals, candidates.member, candidates.suspects),
    )


def _without_attacks(
    target: Target, blind_auc: float | None, reason: str, *, diverged: bool = False
) -> ClusterAuditResult:
    return ClusterAuditResult(
        *(target.cluster, len(target.members), 0, 0, 0),
        *(blind_figure(blind_auc, reason), reason, {}, {}),
        diverged=diverged,
    )


def _signals(
    engine: Engine, target: Target, candidates: Candidates, auditor: Auditor, streams: Streams
) -> Signals | None:
    """Play the references, and ask all models about the candidates.

    None if a reference diverged: records that it learnt would look like all others.
    """
    ours = _log_probs(engine, target.params, candidates.examples)
    inside = np.zeros((len(ours), 0), dtype=bool)
    if auditor.references:
        inside = halves(candidates, auditor.references, streams)
    answers: list[ndarray] = []
    models = train_references(auditor.retrain_recipe, candidates, inside, streams)
    for count, params in enumerate(models, start=1):
        if has_non_finite_values(params):
            return None
        answers.append(_log_probs(engine, params, candidates.examples))
        auditor.observe(target.cluster, count)
    return Signals(
        labels=candidates.labels,
        target=ours,
        references=np.stack([ours, *answers], axis=1)[:, 1:],
        inside=inside,
        gradients=lambda: _gradients(engine, target.params, candidates.examples, streams),
    )


def _gradients(
    engine: Engine, params: Params, examples: Examples, streams: Streams
) -> Iterator[Params]:
    """Yield the gradient of every record's loss: theta minus theta after a step of rate 1."""
    recipe = Recipe(local_steps=1, batch_size=1, learning_rate=1.0)
    at = streams.at("gradients")
    records = (examples.take(torch.tensor([i])) for i in range(len(examples)))
    jobs = (TrainingJob(params, record, at.at(i), recipe) for i, record in enumerate(records))
    return (subtract(params, after) for after in engine.train(jobs))


def _log_probs(
    engine: Engine, params: Params, examples: Examples
) -> Float[ndarray, "records classes"]:
    """Return a model's answers; one that diverged (NaN) gives none: uniform."""
    outputs = _answers(engine, params, examples)
    if outputs is None:
        raise ConfigError(f"No attack here: {NO_CLASSES}.")
    answers = outputs.double().numpy()
    return np.nan_to_num(answers, nan=-np.log(answers.shape[1]))


def _answers(engine: Engine, params: Params, examples: Examples) -> Tensor | None:
    """Return log-probabilities of every class, where there are classes."""
    (scored,) = engine.score([ScoringJob(params, examples)])
    return scored.log_probs


def scored_by(name: str, attack: Scorer, signals: Signals) -> Float[ndarray, " records"]:
    """Run an attack; a user's own may return anything.

    Raises:
        ConfigError: it did not return one finite number per record.
    """
    returned = attack(signals)
    try:
        scores = np.asarray(returned, dtype=np.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigError(
            f"The attack {name} must return one finite score per record, found a "
            f"{type(returned).__name__} ({error}): correct the function."
        ) from error
    if scores.shape != signals.labels.shape or not np.isfinite(scores).all():
        raise ConfigError(
            f"The attack {name} must return one finite score per record, {signals.labels.shape}, "
            f"found {scores.shape}, {int(np.isfinite(scores).sum())} finite: correct the function."
        )
    return scores


def _from_updates(
    engine: Engine, target: Target, candidates: Candidates, auditor: Auditor, streams: Streams
) -> Float[ndarray, " records"] | None:
    """Let every client train once more, and attack its own model of that round.

    None if one of these models diverged.
    """
    at = streams.at("one more round")
    jobs = [
        TrainingJob(target.params, member.train, at.at(member.name), auditor.retrain_recipe.recipe)
        for member in target.members
    ]
    own = list(engine.train(jobs))
    if any(map(has_non_finite_values, own)):
        return None
    signals = [
        of_label(_log_probs(engine, local, candidates.examples), candidates.labels) for local in own
    ]
    return fedmia(np.stack(signals)[None], candidates.suspects)


def accuracies(signals: Signals, member: Bool[ndarray, " records"]) -> dict[str, float]:
    """Return how often a model and its references are right, on records of either side."""
    right = signals.target.argmax(axis=1) == signals.labels
    rates = {"members": float(right[member].mean()), "non_members": float(right[~member].mean())}
    theirs = signals.references.argmax(axis=2) == signals.labels[:, None]
    sides = {"references_inside": signals.inside, "references_outside": ~signals.inside}
    return rates | {name: float(theirs[side].mean()) for name, side in sides.items() if side.any()}
