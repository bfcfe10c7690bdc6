"""What the events of a run release, and how it is paid for: one entry per kind of event.

An event without an entry leaves no guarantee.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from covey.base import events
from covey.base.events import Event
from covey.base.guarantee import Term
from covey.base.names import Handle, Unit

Adversary = Literal[Term.SEES_MODELS, Term.SEES_SUMS, Term.SEES_UPDATES]


ONCE = 1, 1.0
"""Of a client's release that all that it holds is in."""

OPEN: Mapping[type[Event], Term] = {
    events.RiskMeasured: Term.RISKS,
    events.GroupsSought: Term.GROUPS,
    events.PricesSet: Term.PRICES,
    events.ModelsPooled: Term.POOLING,
    events.AnswerRefused: Term.REFUSED_ANSWERS,
    events.WeightReduced: Term.WEIGHTS,
    events.ModelDiverged: Term.DIVERGED,
    events.ClientsReported: Term.REPORTS,
    events.RoundMeasured: Term.CLUSTER_SIZES,
    events.ClusterAudited: Term.AUDITED,
    events.ModelAttacked: Term.AUDITED,
    events.ClientExposed: Term.AUDITED,
    events.FairnessMeasured: Term.AUDITED,
    events.MetricMeasured: Term.AUDITED,
}
"""Events that are published without noise, and how a guarantee says that."""

FREE = (
    *(events.AnonymitySetsFormed, events.AnswersMissing, events.BudgetSpent, events.ClientLeft),
    *(events.ClientsAssigned, events.ClientsJoined, events.ClientsOutsideSets),
    *(events.ClientsWaited, events.ClusterAbandoned, events.ClusterWaited),
    *(events.ClustersCollapsed, events.CohortSampled, events.DistancesSketched),
    *(events.ExposuresLimited, events.HeadsSolved, events.LeaveRequested, events.ModelsMerged),
    *(events.RiskUnknown, events.RunFinished, events.RunRolledBack, events.RunStarted),
    *(events.SumGivenUp, events.ThresholdChanged),
)
"""Events of which all that they reveal of anybody another one reveals, or a guarantee names."""


class Release(NamedTuple):
    """What an event of noise says was released, and how that is paid for.

    Attributes:
        mechanism: by which it is accounted for (`covey.dp.accountant`); sums of updates and of
            counts of losses are of shares.
        unit: what hides in it; None: whatever is behind a choice.
        multiplier: z; of a choice its epsilon.
        cluster: whose sum it is.
        sampling: chance of each contribution to be in a sum.
        sizes: of anonymity sets, of which one member speaks.
        rounding: what rounding has added to 1 / z.
        own: of what clients released by themselves: how often each did, and the chance of one of
            its records to be in it; None: it is a sum.
    """

    mechanism: Literal["gaussian", "updates", "counts", "representative", "choice"]
    unit: Unit | None
    multiplier: float
    cluster: int = 0
    sampling: float = 1.0
    sizes: tuple[int, ...] = ()
    rounding: float = 0.0
    own: Mapping[Handle, tuple[int, float]] | None = None

    @property
    def adversary(self) -> Adversary:
        """From whom it hides."""
        if self.own is not None:
            return Term.SEES_UPDATES
        return Term.SEES_SUMS if self.mechanism in ("updates", "counts") else Term.SEES_MODELS

    @property
    def bounds_both(self) -> bool:
        """Whether it is accounted for where somebody is replaced, too, and not only missing."""
        return self.sampling == 1 and (self.unit == "record") == (self.own is None)


PAID: Mapping[type[Event], Callable[[Any], Release]] = {
    events.SumPerturbed: lambda e: Release(
        "gaussian", e.unit, e.noise_multiplier, e.cluster, e.sampling
    ),
    events.SharesPerturbed: lambda e: Release(
        e.of, e.unit, e.noise_multiplier, e.cluster, rounding=e.rounding
    ),
    events.RepresentativesPerturbed: lambda e: Release(
        "representative", "client", e.noise_multiplier, e.cluster, sizes=e.sizes
    ),
    events.UpdatesPerturbed: lambda e: Release(
        "gaussian", "client", e.noise_multiplier, own=dict.fromkeys(e.clients, ONCE)
    ),
    events.StepsPerturbed: lambda e: Release(
        *("gaussian", "record", e.noise_multiplier),
        own={handle: (times, e.sampling[handle]) for handle, times in e.steps.items()},
    ),
    events.ChoicesPerturbed: lambda e: Release(
        "choice", None, e.epsilon, own=dict.fromkeys(e.handles, ONCE)
    ),
}
"""Events of noise, and what each released."""


def is_accounted_for(event: Event) -> bool:
    """Say whether a guarantee pays for an event, or names what it reveals."""
    if isinstance(event, events.ComponentsUsed):  # of covey's own it records options alone
        return own_code(event) <= {events.FEATURES}  # which a guarantee names
    by_budgets = isinstance(event, events.RunEndedEarly) and event.reason == "budgets"
    return by_budgets or type(event) in {*PAID, *OPEN, *FREE}


def own_code(event: events.ComponentsUsed) -> set[str]:
    """Return the settings behind which code stands that covey does not bring."""
    return {key for key, used in event.components.items() if used.get("source") != ""}


def releases_in(facts: Iterable[Event]) -> Iterator[Release]:
    """Return what these events released under noise."""
    return (PAID[type(fact)](fact) for fact in facts if type(fact) in PAID)


def aggregations_of(facts: Iterable[Event]) -> Iterator[tuple[Event, ...]]:
    """Cut a run's events after every aggregation and every end; the rest comes last."""
    part: list[Event] = []
    for fact in facts:
        part.append(fact)
        if isinstance(fact, events.ModelsMerged | events.RunFinished):
            yield tuple(part)
            part = []
    yield tuple(part)
