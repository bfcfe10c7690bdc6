"""How good the models are on unseen data, which round is the best, and whether a run ends early.

The last two follow from what is recorded, so that a run that was stopped ends where it would have.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from itertools import chain
from math import inf, isfinite, isinf, isnan, nan
from statistics import fmean
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor

from covey.algorithms.state import Cohort, ServerState, personal_models
from covey.base.errors import ConfigError, user_function
from covey.base.events import (
    ClientsReported,
    Event,
    MetricMeasured,
    RoundMeasured,
    RunEndedEarly,
    Table,
)
from covey.base.history import History, RoundRow
from covey.base.metrics import ByModel, Judged
from covey.base.names import ClientName, Handle, Params
from covey.data.examples import Client
from covey.data.population import Population
from covey.engine.metrics import Confusion, Metric, metric_named
from covey.engine.protocol import Engine, Scored, ScoringJob, concatenated
from covey.settings.load import Config

T = TypeVar("T")

Accuracies = Mapping[Handle, float]
"""Accuracy of the model that each client uses, on unseen examples like its own.

The matched test set of its group or, for users' own data, its own holdout.
"""


EVERYBODY = "all clients"


def reported_accuracies(facts: Sequence[Event]) -> Accuracies:
    """Return the accuracies that clients report."""
    reports = (fact.accuracy.items() for fact in facts if isinstance(fact, ClientsReported))
    return dict(chain.from_iterable(reports))


ModelName = tuple[int, Handle]
"""A cluster's model, or the own one of a client in it; with "" it is shared."""


@dataclass(frozen=True, slots=True, eq=False)
class ModelsInUse:
    """The model that each client uses: its own, where it has one, or its cluster's.

    A client without a choice uses that of cluster 0.
    """

    clusters: Sequence[Params]
    assignment: Mapping[Handle, int]
    personal: Mapping[Handle, Params] = field(default_factory=dict[Handle, Params])

    @classmethod
    def of(cls, state: ServerState) -> "ModelsInUse":
        """Return the models of a run that stands here."""
        return cls(state.clusters, state.assignment, personal_models(state))

    def name(self, client: Client) -> ModelName:
        """Return which model a client uses."""
        own = client.handle if client.handle in self.personal else ""
        return self.assignment.get(client.handle, 0), own

    def params(self, name: ModelName) -> Params:
        """Return that model."""
        cluster, own = name
        return self.personal[own] if own else self.clusters[cluster]


def accuracies(engine: Engine, models: ModelsInUse, population: Population) -> Accuracies:
    """Measure every client's accuracy.

    No client has one where nothing is simply right or wrong (`Scored.correct`).
    """
    return _measured(_answered(engine, models, population), lambda scored, _: scored.accuracy)


def squared_errors(
    engine: Engine, models: ModelsInUse, population: Population
) -> Mapping[Handle, float]:
    """Measure every client's mean squared error, where models answer a number."""
    examples = (*population.test, *(client.holdout for client in population.clients))
    if not any(example.labels.is_floating_point() for example in examples):
        return {}

    def figure(scored: Scored, labels: Tensor) -> float:
        return float((scored.predictions.double() - labels.double()).square().mean())

    return _measured(_answered(engine, models, population), figure)


Answers = Mapping[Handle, tuple[Scored, Tensor]]
"""By client, what the model that it uses answers on unseen examples, and their labels."""


def _answered(engine: Engine, models: ModelsInUse, population: Population) -> Answers:
    """Return every client's answers; the same ones of a group's are one object."""
    if population.groups:
        answers = _answers(engine, models, population)
        pairs = {client.handle: _pair(client, models) for client in population.clients}
        return {h: (answers[pair], population.test[pair[0]].labels) for h, pair in pairs.items()}
    testable = [client for client in population.clients if len(client.holdout)]
    jobs = [ScoringJob(models.params(models.name(c)), c.holdout) for c in testable]
    scored = zip(testable, engine.score(jobs), strict=True)
    return {client.handle: (row, client.holdout.labels) for client, row in scored}


def _measured(answers: Answers, figure: Callable[[Scored, Tensor], T | None]) -> Mapping[Handle, T]:
    """Return a figure of every client's answers, where it is known."""
    distinct = {id(scored): (scored, labels) for scored, labels in answers.values()}
    known = {key: figure(*answers_of) for key, answers_of in distinct.items()}
    values = {handle: known[id(scored)] for handle, (scored, _) in answers.items()}
    return {handle: value for handle, value in values.items() if value is not None}


def measured_metrics(
    engine: Engine,
    models: ModelsInUse,
    population: Population,
    metrics: Sequence[Metric],
    *,
    at_end: bool,
) -> tuple[MetricMeasured, ...]:
    """Return what each metric says of the models that clients use, on unseen examples.

    Figures of single clients, and confusion matrices, are those of the end.
    """
    if not metrics:
        return ()
    every = _answered(engine, models, population)
    answers = {handle: pair for handle, pair in every.items() if len(pair[1])}
    by_group = _by_group(answers, population)
    by_cluster: list[list[Handle]] = [[] for _ in models.clusters]
    for handle in answers:
        by_cluster[models.assignment.get(handle, 0)].append(handle)

    def measured(metric: Metric) -> MetricMeasured:
        values = {} if metric.pooled else _measured(answers, partial(_figure, metric))

        def of(handles: Sequence[Handle]) -> float | None:
            if metric.pooled:
                return _known(_figure(metric, *_together(answers, handles))) if handles else None
            sizes = [len(answers[handle][1]) for handle in handles]
            return _known(weighted_mean([values[handle] for handle in handles], sizes))

        if isinstance(metric, Confusion):
            parts = {EVERYBODY: [*answers], **by_group}
            parts |= {f"cluster {j}": handles for j, handles in enumerate(by_cluster)}
            pooled = {
                name: _together(answers, handles) for name, handles in parts.items() if handles
            }
            counts = {name: _counts(metric, *pair) for name, pair in pooled.items()}
            return MetricMeasured(metric.label, None, {}, {}, pooled=True, counts=counts)
        return MetricMeasured(
            metric=metric.label,
            value=of([*answers]),
            by_group={name: of(handles) for name, handles in by_group.items()},
            clients={h: _known(value) for h, value in values.items()} if at_end else {},
            by_cluster=tuple(map(of, by_cluster)),
            pooled=metric.pooled,
            higher_is_better=metric.higher_is_better,
        )

    return tuple(measured(one) for one in metrics if at_end or not isinstance(one, Confusion))


def _together(answers: Answers, handles: Iterable[Handle]) -> tuple[Scored, Tensor]:
    """Return the answers of several clients as if they were of one."""
    scored, labels = zip(*(answers[handle] for handle in handles), strict=True)
    return concatenated(scored), torch.cat(labels)


def _counts(metric: Confusion, scored: Scored, labels: Tensor) -> Table:
    """Return the confusion matrix; empty where a model answers with NaN."""
    known = not scored.losses.isnan().any()
    return tuple(map(tuple, metric.measure(scored, labels).tolist() if known else ()))


def weighted_mean(values: Sequence[float], sizes: Sequence[int]) -> float:
    """Return the mean over the clients whose figure is not NaN, by their sizes; NaN of none."""
    known = [(value, size) for value, size in zip(values, sizes, strict=True) if not isnan(value)]
    return float(np.average([v for v, _ in known], weights=[n for _, n in known])) if known else nan


def _known(value: float) -> float | None:
    return value if isfinite(value) else None


def _figure(metric: Metric, scored: Scored, labels: Tensor) -> float:
    """Return a metric's mean over examples; NaN: these have none.

    Infinite: it is, or the model answers with NaN, of which nothing is known.

    Raises:
        ConfigError: it is a user's own, and raised, or returned something else.
    """
    if scored.losses.isnan().any():
        return inf
    what = f"metric {metric.name}"
    measure = user_function(what, metric.measure) if metric.is_own else metric.measure
    result: Any = measure(scored, labels)
    try:
        values = torch.as_tensor(result, dtype=torch.float64)
        shape = tuple(values.shape)
    except (TypeError, ValueError, RuntimeError):
        values, shape = torch.empty(0), f"a {type(result).__name__}"
    if shape not in ((), (len(labels),)):
        raise ConfigError(
            f"Your {what} must return one number per example, here {len(labels)}, or one for all "
            f"of them, found {shape}: correct its measure."
        )
    value = float(values.mean())
    return inf if isinf(value) else value


def with_fewer_tests(population: Population, max_examples: int) -> Population:
    """Return the population with at most so many test examples, evenly spaced.

    Evenly, because test files may be ordered: MNIST's begins with the easier writers.
    """
    fewer = (
        test.take(torch.linspace(0, len(test) - 1, max_examples).long())
        if len(test) > max_examples
        else test
        for test in population.test
    )
    return replace(population, test=tuple(fewer))


def round_measured(
    accuracies_known: Accuracies,
    assignment: Mapping[Handle, int],
    population: Population,
    num_clusters: int,
    errors: Mapping[Handle, float] = MappingProxyType({}),
) -> RoundMeasured:
    """Average the clients' accuracies, or their squared errors, overall and by group."""
    counts = Counter(assignment.values())
    accuracy, accuracy_by_group = _averaged(accuracies_known, population)
    squared_error, squared_error_by_group = _averaged(errors, population)
    return RoundMeasured(
        accuracy=accuracy,
        accuracy_by_group=accuracy_by_group,
        clients=tuple(counts[j] for j in range(num_clusters)),
        squared_error=squared_error,
        squared_error_by_group=squared_error_by_group,
    )


def _averaged(
    accuracies: Mapping[Handle, float], population: Population
) -> tuple[float | None, dict[str, float]]:
    by_group = _by_group(accuracies, population).items()
    overall = float(np.mean(list(accuracies.values()))) if accuracies else None
    return overall, {
        name: float(np.mean([accuracies[h] for h in handles])) for name, handles in by_group
    }


def _by_group(handles: Collection[Handle], population: Population) -> dict[str, list[Handle]]:
    """Return those of whom a figure was found by the name of their group, in its order."""
    by_group: dict[str, list[Handle]] = {}
    for client in population.clients:
        if client.group is not None and client.handle in handles:
            by_group.setdefault(population.groups[client.group].name, []).append(client.handle)
    return dict(sorted(by_group.items()))


def labelled_predictions(
    engine: Engine, models: ModelsInUse, population: Population
) -> Judged | None:
    """Return each test example's prediction by the model of one client of its group.

    The clients of a group take turns, so that every model answers in proportion to the
    clients who chose it. None without groups, and where examples have no classes: nothing
    is simply right or wrong, or a class is a token's.
    """
    if len(population.groups) < 2:
        return None
    scored = _answers(engine, models, population)
    if any(s.correct is None or s.num_tokens is not None for s in scored.values()):
        return None
    answers = {pair: row.predictions.numpy() for pair, row in scored.items()}
    labels: list[ndarray] = []
    predictions: list[ndarray] = []
    groups: list[ndarray] = []
    for group, test in enumerate(population.test):
        members = [c for c in population.clients if c.group == group]
        if not members:
            continue
        turns = [_pair(members[k % len(members)], models) for k in range(len(test))]
        labels.append(test.labels.numpy())
        predictions.append(np.array([answers[pair][k] for k, pair in enumerate(turns)]))
        groups.append(np.full(len(test), group))
    return Judged(
        np.concatenate(labels),
        np.concatenate(predictions),
        np.concatenate(groups),
        population.num_classes,
        _by_model(answers, models, population) if labels[0].ndim == 1 else None,
    )


def adjusted_rand_index(
    assignment: Mapping[Handle, int], clients: Sequence[Client]
) -> float | None:
    """Return the adjusted Rand index between clusters and true groups: 1 is equal."""
    if any(client.group is None for client in clients):
        return None
    from sklearn.metrics import adjusted_rand_score

    groups = [client.group for client in clients]
    chosen = [assignment[client.handle] for client in clients]
    return float(adjusted_rand_score(groups, chosen))


def _pair(client: Client, models: ModelsInUse) -> tuple[int, ModelName]:
    return client.group or 0, models.name(client)


def _by_model(
    answers: Mapping[tuple[int, ModelName], ndarray], in_use: ModelsInUse, population: Population
) -> ByModel:
    users = Counter(_pair(client, in_use) for client in population.clients)
    groups, models = (sorted(set(user)) for user in zip(*users, strict=True))
    classes = range(population.num_classes)
    clients = np.array([[users[group, j] for j in models] for group in groups])
    from sklearn.metrics import confusion_matrix

    confusions = np.zeros((*clients.shape, len(classes), len(classes)), dtype=np.int64)
    for (group, j), predictions in answers.items():
        confusions[groups.index(group), models.index(j)] = confusion_matrix(
            population.test[group].labels.numpy(), predictions, labels=classes
        )
    return ByModel(confusions, clients)


def _answers(
    engine: Engine, models: ModelsInUse, population: Population
) -> dict[tuple[int, ModelName], Scored]:
    """Return what each (group, model) in use says on the group's test set."""
    pairs = sorted({_pair(client, models) for client in population.clients})
    jobs = [ScoringJob(models.params(name), population.test[group]) for group, name in pairs]
    return dict(zip(pairs, engine.score(jobs), strict=True))


class BestRound(NamedTuple):
    """The round with the best figure; of several, the first.

    Attributes:
        round: its number, from 0.
        value: the figure.
    """

    round: int
    value: float


def best_round(rows: Iterable[RoundRow], figure: str, min_change: float = 0.0) -> BestRound | None:
    """Return the best of these rounds; None: of none is the figure known."""
    best: BestRound | None = None
    rows = list(rows)
    value_of, sign = _read_off(figure, rows)
    for row in rows:
        value = value_of(row)
        if value is not None and (best is None or sign * (value - best.value) > min_change):
            best = BestRound(row.round_index, value)
    return best


def early_end(history: History, config: Config) -> RunEndedEarly | None:
    """Return that a run ends with its latest round, if the settings want it to."""
    wanted, rows = config.stopping, history.rounds
    if not rows or len(rows) >= config.rounds:
        return None
    ended = partial(RunEndedEarly, len(rows), config.rounds)
    if history.empty_rounds >= wanted.empty_rounds:
        return ended("participants", patience=wanted.empty_rounds)
    reached = rows[-1].accuracy
    if wanted.target and reached is not None and reached >= wanted.target:
        return ended("target", accuracy=reached, target=wanted.target)
    best = best_round(rows, wanted.figure, wanted.min_change)
    if best is None:
        return None
    value_of, _ = _read_off(wanted.figure, rows)
    known_since = sum(row.round_index > best.round and value_of(row) is not None for row in rows)
    if known_since < wanted.patience:
        return None
    return ended("figure", figure=wanted.figure, patience=wanted.patience)


def _highest_risk(row: RoundRow) -> float | None:
    """Return the highest risk among clusters with clients, if all of these are known."""
    risks = [r.value for r, n in zip(row.risks, row.clients, strict=True) if n]
    known = [risk for risk in risks if risk is not None]
    return max(known) if known and len(known) == len(risks) else None


def _read_off(
    figure: str, rows: Sequence[RoundRow]
) -> tuple[Callable[[RoundRow], float | None], int]:
    """Return how a figure, or a metric, is read off a round, and the sign of what is better."""
    metrics = {name: metric for row in rows for name, metric in row.metrics.items()}
    if figure in FIGURES or (label := metric_named(figure, metrics)) is None:
        return FIGURES.get(figure, (lambda _: None, 1))
    sign = 1 if metrics[label].higher_is_better else -1
    return lambda row: row.metrics[label].value if label in row.metrics else None, sign


FIGURES: Mapping[str, tuple[Callable[[RoundRow], float | None], int]] = {
    "accuracy": (lambda row: row.accuracy, 1),
    "lowest-accuracy": (lambda row: min(row.accuracy_by_group.values(), default=None), 1),
    "highest-risk": (_highest_risk, -1),
    "over": (lambda row: None if row.over is None else float(row.over), -1),
}
"""How each figure is read off a round, and whether more of it is better (1) or less."""


@dataclass(frozen=True, slots=True)
class ClientValues:
    """What is known of one client after a round; None: it is not known here.

    Attributes:
        cluster: the one that it chose last.
        risk: the estimate of its cluster's model that is in force.
        threshold: the highest risk that it accepts.
        loss: of its training in this round, in nats: the mean over the batches of its last
            epoch. It is recorded nowhere, and not known of clients that are apart, of
            those that did not train now, and where their gradients are private.
    """

    cluster: int | None
    risk: float | None
    risk_standard_error: float | None
    threshold: float | None
    loss: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundMetrics(RoundRow):
    """One round that was just recorded; figures that are not known are None.

    Attributes:
        loss: of training, in nats: the mean over the clients of whom it is known.
        again: whether the round was played before, and rolled back as a client left.
        values: what is known of each client that has not left, by name.
    """

    loss: float | None
    again: bool
    values: Mapping[ClientName, ClientValues]


OnRound = Callable[[RoundMetrics], None]
"""Called once with each round that is recorded, and never with one that was before.

What it raises stops the run, which can be resumed: the round is kept.
"""


def played_round(
    clients: Cohort, history: History, losses: Mapping[Handle, float], *, again: bool
) -> RoundMetrics:
    """Return the newest round of a run, with the losses of those who trained in it."""
    row = history.rounds[-1]
    return RoundMetrics(
        **{column.name: getattr(row, column.name) for column in fields(row)},
        loss=fmean(losses.values()) if losses else None,
        again=again,
        values={
            client.name: _values(client.handle, history, losses.get(client.handle))
            for client in clients
        },
    )


def _values(handle: Handle, history: History, loss: float | None) -> ClientValues:
    cluster = history.assignment.get(handle)
    estimate = None if cluster is None else history.figures.get(cluster)
    thresholds = history.started.risk_thresholds if history.started else {}
    return ClientValues(
        cluster=cluster,
        risk=estimate.risk if estimate else None,
        risk_standard_error=estimate.standard_error if estimate else None,
        threshold=thresholds.get(handle),
        loss=loss,
    )
