"""A user's own estimator of risk, held to what covey does with what it finds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from covey.build.plugins import user_function
from covey.data import Client
from covey.errors import ConfigError
from covey.membership import (
    Assessment,
    Finding,
    RedTeam,
    RiskEstimate,
    SelfAssessment,
    Target,
    Withheld,
)
from covey.rng import Streams
from covey.types import Handle, Params

__all__ = ["user_red_team", "user_self_assessment"]


def user_red_team(name: str, attack: RedTeam) -> RedTeam:
    """Return a red team of the user's own, which finds a number with an error, or none.

    Its errors, and what else it returns, become ConfigErrors that name it.
    """
    measure = user_function(f"risk estimator {name}", attack)

    def assess(target: Target, streams: Streams) -> Assessment:
        found = measure(target, streams)
        return found._replace(finding=_checked(name, found.finding))

    return assess


def user_self_assessment(name: str, assess: SelfAssessment) -> SelfAssessment:
    """Return the same where clients measure for themselves."""
    measure = user_function(f"risk estimator {name}", assess)

    def checked(
        models: tuple[Params, ...], cohort: Sequence[Client], streams: Streams
    ) -> dict[Handle, list[RiskEstimate | None]]:
        found: Mapping[Handle, list[RiskEstimate | None]] = measure(
            models, cohort, streams
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
