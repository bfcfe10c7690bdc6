"""A user's own steps of a round (selection, aggregation, risk): what they return is checked."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor

from covey.aggregation.base import AggregationResult, Aggregator, ClientUpdate
from covey.aggregation.server import ServerStep
from covey.algorithms.selection import Selection, SelectionInputs
from covey.base.component_state import States
from covey.base.errors import ConfigError
from covey.base.figure import Figure, RiskEstimate
from covey.base.names import Handle, Params
from covey.base.params import misfit
from covey.base.rng import Streams
from covey.base.user_code import user_function
from covey.data.examples import Client
from covey.membership.estimators import RiskContext
from covey.membership.truth import Assessment, Target


def user_selection(name: str, selection: Selection) -> Selection:
    """Return a selection of the user's own, which names one offered cluster per client.

    Its errors, and what else it returns, become ConfigErrors that name it.
    """
    choose = user_function(f"selection {name}", selection)

    def select(inputs: SelectionInputs) -> Tensor:
        returned: Any = choose(inputs)
        try:
            picked = torch.as_tensor(returned)
        except Exception as error:
            raise _unfit(name, inputs, f"a {type(returned).__name__}") from error
        whole = not (picked.is_floating_point() or picked.is_complex())
        if picked.numel() and (not whole or picked.dtype == torch.bool):
            raise _unfit(name, inputs, f"values of {picked.dtype}")
        offered = inputs.available.nonzero().flatten()
        fits = picked.shape == (len(inputs.losses),)
        if not fits or not torch.isin(picked, offered).all():
            actual = f"shape {tuple(picked.shape)} with values {picked.unique().tolist()}"
            raise _unfit(name, inputs, actual)
        return picked.long()

    return select


def _unfit(name: str, inputs: SelectionInputs, actual: str) -> ConfigError:
    return ConfigError(
        f"Your selection {name} must return one offered cluster index per client: "
        f"{len(inputs.losses)} integers out of "
        f"{inputs.available.nonzero().flatten().tolist()}, found {actual}. Choose among "
        f"`inputs.available` only."
    )


def user_aggregator(name: str, aggregate: Aggregator) -> Aggregator:
    """Return a user's aggregation, which gives every cluster a model of its kind.

    Its errors, and what else it returns, become ConfigErrors that name it. Values that are
    not finite are its own only where all that it received is finite.
    """
    run = user_function(f"aggregation {name}", aggregate)

    def merged(
        clusters: tuple[Params, ...], updates: Iterable[ClientUpdate], streams: Streams
    ) -> AggregationResult:
        finite = [True]
        returned: Any = run(clusters, _watched(updates, finite), streams)
        if not isinstance(returned, AggregationResult):
            raise ConfigError(
                f"Your aggregation {name} must return covey.AggregationResult, found a "
                f"{type(returned).__name__}. Return AggregationResult(clusters)."
            )
        if problem := models_problem(clusters, returned.clusters, strict=all(finite)):
            raise ConfigError(f"Your aggregation {name} {problem}")
        return replace(returned, clusters=tuple(returned.clusters))

    return merged


def user_server_step(name: str, step: ServerStep) -> ServerStep:
    """Return a server optimizer's step of the user's own, held to the same as an aggregation."""
    part = f"server optimizer {name}"
    run = user_function(part, step)

    def stepped(
        models: tuple[Params, ...], aggregated: tuple[Params, ...], states: States
    ) -> tuple[tuple[Params, ...], States]:
        returned: Any = run(models, aggregated, states)
        pair = cast("tuple[Any, ...]", returned) if isinstance(returned, tuple) else ()
        if len(pair) != 2 or not isinstance(pair[1], Mapping):
            raise ConfigError(
                f"Your {part} must return the next models and the states, found a "
                f"{type(returned).__name__}. Return `models, states`."
            )
        strict = all(map(is_finite, aggregated))
        if problem := models_problem(models, pair[0], strict=strict):
            raise ConfigError(f"Your {part} {problem}")
        return tuple(pair[0]), cast("States", pair[1])

    return stepped


def _watched(updates: Iterable[ClientUpdate], finite: list[bool]) -> Iterator[ClientUpdate]:
    """Yield the updates, and put down of each whether it is finite."""
    for each in updates:
        finite.append(is_finite(each.update))
        yield each


def models_problem(
    before: tuple[Params, ...],
    after: Any,  # noqa: ANN401 - a user's
    *,
    strict: bool,
) -> str:
    """Return what is wrong with the models that were returned; "" if nothing is."""
    if not isinstance(after, (tuple, list)) or len(after) != len(before):
        count = len(after) if isinstance(after, (tuple, list)) else type(after).__name__
        return f"must return {len(before)} models, one per cluster, found {count}."
    for j, (old, new) in enumerate(zip(before, after, strict=True)):
        if unlike := misfit(old, new):
            return (
                f"must return every model with the parameters it received: in cluster "
                f"{j} {unlike}. Keep their names and shapes."
            )
        for key, value in new.items():
            if value.dtype != old[key].dtype:
                return (
                    f"must keep the type of every parameter, found {value.dtype} "
                    f"instead of {old[key].dtype} for {key} of cluster {j}. Correct it."
                )
        if strict and is_finite(old) and not is_finite(new):
            return (
                f"made values that are not finite out of updates that are, in cluster "
                f"{j}. Divide by no weight of 0, and look for overflow."
            )
    return ""


def is_finite(params: Params) -> bool:
    """Say whether all of a model's numbers are finite."""
    return all(bool(each.isfinite().all()) for each in params.values())


Assess = Callable[[Target, RiskContext, Streams], Assessment]
Judged = dict[Handle, list[RiskEstimate | None]]
Judge = Callable[[tuple[Params, ...], Sequence[Client], RiskContext, Streams], Judged]


def user_assessment(name: str, assess: Assess) -> Assess:
    """Return the assessment of a user's own, which finds a number with an error, or none.

    Its errors, and what else it returns, become ConfigErrors that name it.
    """
    measure = user_function(f"risk estimator {name}", assess)

    def assessed(target: Target, context: RiskContext, streams: Streams) -> Assessment:
        assessment = measure(target, context, streams)
        return assessment._replace(estimate=_checked(name, assessment.estimate))

    return assessed


def user_self_assessment(name: str, judge: Judge) -> Judge:
    """Return the same where clients measure for themselves."""
    measure = user_function(f"risk estimator {name}", judge)

    def checked(
        models: tuple[Params, ...], cohort: Sequence[Client], context: RiskContext, streams: Streams
    ) -> Judged:
        estimates: Mapping[Handle, list[RiskEstimate | None]] = measure(
            models, cohort, context, streams
        )
        return {handle: [fit(each) for each in row] for handle, row in estimates.items()}

    def fit(each: RiskEstimate | None) -> RiskEstimate | None:
        fits = None if each is None else _checked(name, each)
        return fits if fits and fits.is_known else None

    return checked


def _checked(name: str, estimate: object) -> RiskEstimate:
    """Return the estimates in plain numbers; refuse those that no rule can act on."""
    if not isinstance(estimate, RiskEstimate):
        raise ConfigError(
            f"Your risk estimator {name} must return a covey.RiskEstimate of a covey.Figure, or "
            f"covey.RiskEstimate.unknown with a reason, found a {type(estimate).__name__}. "
            f"Correct it."
        )
    if not estimate.is_known:
        return RiskEstimate.unknown(estimate.figure.reason)
    risk, error = estimate.risk, estimate.standard_error
    if not (0 <= risk <= 1 and 0 <= error < math.inf):
        raise ConfigError(
            f"Your risk estimator {name} must return a risk from 0 to 1 with a standard "
            f"error of 0 or more, found {risk:g} with {error:g}. Return "
            f"covey.RiskEstimate.unknown where there is no estimate."
        )
    auc = None if estimate.auc is None else float(estimate.auc)
    return replace(estimate, figure=Figure(float(risk), float(error)), auc=auc)
