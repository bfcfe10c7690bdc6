"""A user's own steps of a round (selection, aggregation, risk): what they return is checked.

A built-in step is returned as it is. The errors of a user's own, and what else it returns than
it must, become ConfigErrors that name it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from covey.aggregation.base import (
    Aggregation,
    AggregationResult,
    Aggregator,
    BeginRound,
    ClientUpdate,
    FederationInfo,
)
from covey.aggregation.server import Models, ServerOptimizer, ServerStep
from covey.algorithms.selection import ClusterSelection, Selection, SelectionInputs
from covey.base.component_state import States
from covey.base.errors import ConfigError, user_function
from covey.base.figure import Figure, RiskEstimate
from covey.base.names import Handle
from covey.base.params import misfit, not_finite
from covey.base.rng import Streams
from covey.data.examples import Client
from covey.membership.estimators import RiskContext, RiskEstimator
from covey.membership.truth import Assessment, Target


def mistaken(part: str, rule: str, returned: object) -> ConfigError:
    """Return an error about a value of a wrong type."""
    kind = "None" if returned is None else f"a {type(returned).__name__}"
    return ConfigError(f"Your {part} must {rule}, found {kind}: correct it.")


def checked_selection(choice: ClusterSelection) -> Selection:
    """Return how clients choose: a user's own names one offered cluster per client."""
    if not choice.is_own:
        return choice.select
    choose = user_function(f"selection {choice.name}", choice.select)

    def select(inputs: SelectionInputs) -> Tensor:
        returned: Any = choose(inputs)
        offered, count = inputs.available.nonzero().flatten(), len(inputs.losses)
        actual = f"a {type(returned).__name__}"
        with suppress(TypeError, ValueError, RuntimeError):
            picked = torch.as_tensor(returned)
            odd = picked.is_floating_point() or picked.is_complex() or picked.dtype == torch.bool
            whole = not (picked.numel() and odd)
            if whole and picked.shape == (count,) and torch.isin(picked, offered).all():
                return picked.long()
            actual = f"shape {tuple(picked.shape)} with values {picked.unique().tolist()}"
        raise ConfigError(
            f"Your selection {choice.name} must return one offered cluster index per client, "
            f"{count} integers out of {offered.tolist()}, found {actual}: take `inputs.available`."
        )

    return select


def checked_aggregation(aggregation: Aggregation, federation: FederationInfo) -> BeginRound:
    """Return how a round's aggregation begins: a user's own gives every cluster a model."""
    begin = partial(aggregation.begin, federation=federation)
    if not aggregation.is_own:
        return begin
    part = f"aggregation {aggregation.name}"

    def begun(models: Models, streams: Streams) -> Aggregator:
        own: Any = user_function(part, begin)(models, streams)
        if not isinstance(own, Aggregator):
            rule = "return an object with `add` and `result` in `begin`, such as covey.ClusterMeans"
            raise mistaken(part, rule, own)
        return _Checked(part, models, own, repeats=federation.repeats)

    return begun


class _Checked:
    """A user's own aggregation of a round: it gives every cluster a model of its kind.

    Values that are not finite are its own only where all that it received is finite.
    """

    def __init__(self, part: str, models: Models, own: Aggregator, *, repeats: bool) -> None:
        self._part, self._models, self._repeats = part, models, repeats
        self._add, self._result = user_function(part, own.add), user_function(part, own.result)
        self._finite, self._handles = True, set[Handle]()

    def add(self, update: ClientUpdate) -> None:
        """Let it take the update."""
        self._finite = self._finite and not not_finite(update.update)
        self._handles.add(update.handle)
        self._add(update)

    def result(self) -> AggregationResult:
        """Return its result, if covey can go on with it."""
        returned: Any = self._result()
        if not isinstance(returned, AggregationResult):
            raise mistaken(self._part, "return covey.AggregationResult(clusters)", returned)
        if returned.again and not (self._repeats and self._handles.issuperset(returned.again)):
            raise ConfigError(
                f"Your {self._part} must get by with each update once, or twice where "
                f"`federation.repeats`, found {len(returned.again)} in `again`: name clients that "
                f"it was passed, in one `result` of a round, or hold their updates."
            )
        self._repeats = False
        if problem := models_problem(self._models, returned.clusters, strict=self._finite):
            raise ConfigError(f"Your {self._part} {problem}")
        return replace(returned, clusters=tuple(returned.clusters))


def checked_server_step(optimizer: ServerOptimizer) -> ServerStep:
    """Return what the server makes of aggregated models: held to the same as an aggregation."""
    if not optimizer.is_own:
        return optimizer.step
    part = f"server optimizer {optimizer.name}"
    run = user_function(part, optimizer.step)

    def stepped(models: Models, aggregated: Models, states: States) -> tuple[Models, States]:
        returned: Any = run(models, aggregated, states)
        pair = cast("tuple[Any, ...]", returned) if isinstance(returned, tuple) else ()
        if len(pair) != 2 or not isinstance(pair[1], Mapping):
            raise mistaken(part, "return `models, states`", returned)
        if problem := models_problem(models, pair[0], strict=not any(map(not_finite, aggregated))):
            raise ConfigError(f"Your {part} {problem}")
        return tuple(pair[0]), cast("States", pair[1])

    return stepped


def models_problem(
    before: Models,
    after: Any,  # noqa: ANN401 - a user's
    *,
    strict: bool,
) -> str:
    """Return what is wrong with the models that were returned; "" if nothing is."""
    if not isinstance(after, (tuple, list)) or len(after) != len(before):
        count = len(after) if isinstance(after, (tuple, list)) else type(after).__name__
        return f"must return {len(before)} models, one per cluster, found {count}: correct it."
    for j, (old, new) in enumerate(zip(before, after, strict=True)):
        if unlike := misfit(old, new):
            return (
                f"must return every model with the parameters it received, found that in cluster "
                f"{j} {unlike}: keep their names and shapes."
            )
        if odd := [key for key, value in new.items() if value.dtype != old[key].dtype]:
            return (
                f"must keep the type of every parameter, found {new[odd[0]].dtype} instead of "
                f"{old[odd[0]].dtype} for {odd[0]} of cluster {j}: correct it."
            )
        if strict and not not_finite(old) and not_finite(new):
            return (
                f"must make finite values of finite updates, found others in cluster {j}: divide "
                f"by no weight of 0, and look for overflow."
            )
    return ""


Assess = Callable[[Target, RiskContext, Streams], Assessment]
Judged = dict[Handle, list[RiskEstimate | None]]
Judge = Callable[[Models, Sequence[Client], RiskContext, Streams], Judged]


def checked_assess(estimator: RiskEstimator) -> Assess:
    """Return how models are measured: a user's own finds a number with an error, or none."""
    if not estimator.is_own:
        return estimator.assess
    measure = user_function(f"risk estimator {estimator.name}", estimator.assess)

    def assessed(target: Target, context: RiskContext, streams: Streams) -> Assessment:
        assessment = measure(target, context, streams)
        return assessment._replace(estimate=_plain(estimator.name, assessment.estimate))

    return assessed


def checked_judge(estimator: RiskEstimator) -> Judge:
    """Return how clients measure for themselves."""
    if not estimator.is_own:
        return estimator.judge
    measure = user_function(f"risk estimator {estimator.name}", estimator.judge)

    def judged(
        models: Models, cohort: Sequence[Client], context: RiskContext, streams: Streams
    ) -> Judged:
        estimates: Mapping[Handle, list[RiskEstimate | None]] = measure(
            models, cohort, context, streams
        )
        rows = {h: [e and _plain(estimator.name, e) for e in row] for h, row in estimates.items()}
        return {h: [e if e and e.is_known else None for e in row] for h, row in rows.items()}

    return judged


def _plain(name: str, estimate: object) -> RiskEstimate:
    """Return the estimates in plain numbers; refuse those that no rule can act on."""
    if not isinstance(estimate, RiskEstimate):
        rule = "return a covey.RiskEstimate of a covey.Figure, or `unknown` with a reason"
        raise mistaken(f"risk estimator {name}", rule, estimate)
    if not estimate.is_known:
        return RiskEstimate.unknown(estimate.figure.reason)
    risk, error = estimate.risk, estimate.standard_error
    if not (0 <= risk <= 1 and 0 <= error < math.inf):
        raise ConfigError(
            f"Your risk estimator {name} must return a risk from 0 to 1 with a standard error of 0 "
            f"or more, found {risk:g} with {error:g}: else return covey.RiskEstimate.unknown."
        )
    auc = None if estimate.auc is None else float(estimate.auc)
    return replace(estimate, figure=Figure(float(risk), float(error)), auc=auc)
