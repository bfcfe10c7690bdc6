"""What a red team looks at, and what it finds: the same for every estimator of risk."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from jaxtyping import Int
from numpy import ndarray

from covey.components.state import ComponentState, States
from covey.data.examples import Client
from covey.membership.estimates import Finding, RiskEstimate
from covey.rng import Streams
from covey.types import Handle, Params

__all__ = [
    "Assessment",
    "Counts",
    "Profile",
    "RedTeam",
    "SelfAssessment",
    "Target",
]

Profile = tuple[tuple[int, int], ...]
"""The (group, number of examples) of each client of a cluster, sorted."""


Counts = Int[ndarray, "folds bins"]


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """One cluster model under attack, before the round `round_index`.

    Attributes:
        members: the clients whose latest choice is this cluster.
        states: what components have kept, an estimator its own (`covey.kept`).
        diverged: why the model is known to be none; "" where it is not.
        counts: what its members count (`Count`), where they have been asked already.
    """

    cluster: int
    params: Params
    members: tuple[Client, ...]
    round_index: int
    states: States = field(default_factory=dict[str, object])
    diverged: str = ""
    counts: tuple[Counts, Counts] | None = None


class Assessment(NamedTuple):
    """What was found of one cluster, and what to keep for the next time, if anything."""

    finding: Finding
    state: ComponentState | None = None


RedTeam = Callable[[Target, Streams], Assessment]
"""Looks at one cluster model."""

SelfAssessment = Callable[
    [tuple[Params, ...], Sequence[Client], Streams],
    dict[Handle, list[RiskEstimate | None]],
]
"""What each client finds of each model that it receives, on its own side."""
