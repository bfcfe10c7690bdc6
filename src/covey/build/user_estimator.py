"""A user's own estimator of risk, held to what covey does with what it finds."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from covey.build.plugins import user_function
from covey.data import Client
from covey.errors import ConfigError
from covey.membership import (
    Assessment,
    Finding,
    RiskContext,
    RiskEstimate,
    Target,
    Withheld,
)
from covey.rng import Streams
from covey.types import Handle, Params

__all__ = ["user_assessment", "user_self_assessment"]


Assess = Callable[[Target, RiskContext, Streams], Assessment]
Judged = dict[Handle, list[RiskEstimate | None]]
Judge = Callable[[tuple[Params, ...], Sequence[Client], RiskContext, Streams], Judged]


def user_assessment(name: str, assess: Assess) -> Assess:
    """Return the assessment of a user's own, which finds a number with an error, or none.

    Its errors, and what else it returns, become ConfigErrors that name it.
    """
    measure = user_function(f"risk estimator {name}", assess)

    def assessed(target: Target, context: RiskContext, streams: Streams) -> Assessment:
        found = measure(target, context, streams)
        return found._replace(finding=_checked(name, found.finding))

    return assessed


def user_self_assessment(name: str, judge: Judge) -> Judge:
    """Return the same where clients measure for themselves."""
    measure = user_function(f"risk estimator {name}", judge)

    def checked(
        models: tuple[Params, ...],
        cohort: Sequence[Client],
        context: RiskContext,
        streams: Streams,
    ) -> Judged:
        found: Mapping[Handle, list[RiskEstimate | None]] = measure(
            models, cohort, context, streams
        )
        return {handle: [fit(each) for each in row] for handle, row in found.items()}

    def fit(each: RiskEstimate | None) -> RiskEstimate | None:
        fits = None if each is None else _checked(name, each)
        return fits if isinstance(fits, RiskEstimate) else None

    return checked


def _checked(name: str, found: object) -> Finding:
    """Return what was found, in plain numbers; refuse what nobody can act on."""
    if isinstance(found, Withheld):
        return found
    if not isinstance(found, RiskEstimate):
        raise ConfigError(
            f"Your risk estimator {name} must return a covey.RiskEstimate, or "
            f"covey.Withheld with a reason, found a {type(found).__name__}. Correct it."
        )
    risk, error = found.risk, found.standard_error
    if not (0 <= risk <= 1 and 0 <= error < math.inf):
        raise ConfigError(
            f"Your risk estimator {name} must return a risk from 0 to 1 with a standard "
            f"error of 0 or more, found {risk:g} with {error:g}. Return covey.Withheld "
            f"where there is no estimate."
        )
    auc = None if found.auc is None else float(found.auc)
    return replace(found, risk=float(risk), standard_error=float(error), auc=auc)
