"""What a red team looks at, and what it states: the same for every source of risk."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from covey.data.examples import Client
from covey.events import RiskMeasured
from covey.membership.estimates import Figure
from covey.rng import Streams
from covey.types import Params

__all__ = [
    "DIVERGED",
    "EXTRAPOLATED",
    "Assessment",
    "Profile",
    "RedTeam",
    "ShadowFederation",
    "Target",
    "diverged",
    "extrapolated",
    "stated",
    "withheld",
]

EXTRAPOLATED = "extrapolated"
"""How the reason of an extrapolated figure begins, so that they can be counted."""

DIVERGED = "diverged"
"""How every reason begins that stands in place of a diverged model's figure."""

Profile = tuple[tuple[int, int], ...]
"""The (group, number of examples) of each client of a cluster, sorted."""


@dataclass(frozen=True, slots=True, eq=False)
class ShadowFederation:
    """A federation of pseudo-clients that plays the rounds which a cluster plays.

    Attributes:
        profile: whose sizes and groups the pseudo-clients copy.
        place: cluster, round in which it was set up, and index: names its streams.
        rounds: how many rounds it has played.
    """

    profile: Profile
    place: tuple[int, int, int]
    rounds: int
    params: Params


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """One cluster model under attack, before the round `round_index`.

    Attributes:
        members: the clients whose latest choice is this cluster.
        shadows: what the red team kept from the last time; only `shadow` keeps any.
        diverged: why the model is known to be none; "" where it is not.
    """

    cluster: int
    params: Params
    members: tuple[Client, ...]
    round_index: int
    shadows: tuple[ShadowFederation, ...] = ()
    diverged: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Assessment:
    """One cluster's figure, and the shadows to keep for the next time.

    Attributes:
        diverged: why the model is none, and its older figure is void too; "" if it is one.
    """

    figure: RiskMeasured
    shadows: tuple[ShadowFederation, ...] = ()
    diverged: str = ""


RedTeam = Callable[[Target, Streams], Assessment]


def stated(target: Target, source: str, figure: Figure, reason: str) -> RiskMeasured:
    """State a figure that may be acted on."""
    return replace(_measured(target, source, figure, reason), calibrated=True)


def extrapolated(
    target: Target, source: str, figure: Figure, reason: str
) -> RiskMeasured:
    """State a figure that nobody may act on: it was measured on smaller federations."""
    return _measured(target, source, figure, f"{EXTRAPOLATED}: {reason}")


def withheld(target: Target, source: str, reason: str) -> RiskMeasured:
    """State that there is no figure, and why: unknown means unprotected."""
    return _measured(target, source, None, f"withheld: {reason}")


def diverged(target: Target, source: str, reason: str) -> Assessment:
    """State that there is no model to give a figure of."""
    figure = _measured(target, source, None, f"{DIVERGED}: {reason}")
    return Assessment(figure, target.shadows, reason)


def _measured(
    target: Target, source: str, figure: Figure | None, reason: str
) -> RiskMeasured:
    return RiskMeasured(
        cluster=target.cluster,
        round_index=target.round_index,
        source=source,
        risk=figure and figure.risk,
        standard_error=figure and figure.standard_error,
        auc=figure and figure.auc,
        members=figure.members if figure else 0,
        non_members=figure.non_members if figure else 0,
        calibrated=False,
        reason=reason,
    )
