"""The facts that a guarantee can say something about; any other leaves none."""

from collections.abc import Iterator, Sequence

from covey.dp.guarantee import Unit
from covey.dp.wording import OPEN
from covey.events import (
    AnonymitySetsFormed,
    AnswersMissing,
    ChoicesPerturbed,
    ClientLeft,
    ClientsAssigned,
    ClientsJoined,
    ClusterAbandoned,
    ClustersCollapsed,
    ClusterWaited,
    CohortSampled,
    ComponentsUsed,
    DistancesSketched,
    Event,
    HeadPerturbed,
    HeadsSolved,
    LeaveRequested,
    ModelsMerged,
    MovesWaited,
    OrganisationsAttested,
    RecordsChanged,
    RepresentativesPerturbed,
    RiskUnknown,
    RunFinished,
    RunRolledBack,
    RunStarted,
    StepsPerturbed,
    SumGivenUp,
    SumPerturbed,
    ThresholdChanged,
)

__all__ = ["NOISE", "aggregations_of", "has_own_features", "hides", "is_known_fact"]

FEATURES = "model.features"
KNOWN = (
    *OPEN,
    AnswersMissing,
    ClientsJoined,
    SumPerturbed,
    HeadPerturbed,
    RepresentativesPerturbed,
    StepsPerturbed,
    ChoicesPerturbed,
    AnonymitySetsFormed,
    DistancesSketched,
    OrganisationsAttested,
    ClientsAssigned,
    ModelsMerged,
    # What these tell of anybody is told by another one too, or always named as open.
    ClientLeft,
    ClusterAbandoned,
    ClusterWaited,
    ClustersCollapsed,
    CohortSampled,
    HeadsSolved,
    LeaveRequested,
    MovesWaited,
    RecordsChanged,
    RiskUnknown,
    RunFinished,
    RunRolledBack,
    RunStarted,
    SumGivenUp,
    ThresholdChanged,
)

NOISE = (SumPerturbed, HeadPerturbed, RepresentativesPerturbed, StepsPerturbed)
"""What `hides` may be true of."""


def is_known_fact(fact: Event) -> bool:
    """Say whether a guarantee accounts for a fact, or names it."""
    if isinstance(fact, ComponentsUsed):  # of covey's own it tells options alone
        return _own_code(fact) <= {FEATURES}
    return isinstance(fact, KNOWN)


def hides(fact: Event, unit: Unit) -> bool:
    """Say whether somebody's noise was told by this fact."""
    if isinstance(fact, HeadPerturbed):
        return True
    if unit == "record":
        return isinstance(fact, StepsPerturbed)
    return isinstance(fact, SumPerturbed | RepresentativesPerturbed)


def aggregations_of(facts: Sequence[Event]) -> Iterator[tuple[Event, ...]]:
    """Cut a story after every merge and every end; the rest comes last."""
    part: list[Event] = []
    for fact in facts:
        part.append(fact)
        if isinstance(fact, ModelsMerged | RunFinished):
            yield tuple(part)
            part = []
    yield tuple(part)


def has_own_features(fact: Event) -> bool:
    """Say whether a run has a feature map that covey does not bring."""
    return isinstance(fact, ComponentsUsed) and FEATURES in _own_code(fact)


def _own_code(fact: ComponentsUsed) -> set[str]:
    """Return the settings behind which code stands that covey does not bring."""
    return {key for key, used in fact.components.items() if used.get("source") != ""}
