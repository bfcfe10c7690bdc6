"""What a run guarantees so far, what it is about, and which facts it can speak of."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from covey.base.events import (
    AnonymitySetsFormed,
    AnswerRefused,
    AnswersMissing,
    ChoicesPerturbed,
    ClientExposed,
    ClientLeft,
    ClientsAssigned,
    ClientsJoined,
    ClientsReported,
    ClusterAbandoned,
    ClusterAudited,
    ClustersCollapsed,
    ClusterWaited,
    CohortSampled,
    ComponentsUsed,
    DistancesSketched,
    Event,
    FairnessMeasured,
    GroupsSought,
    HeadPerturbed,
    HeadsSolved,
    LeaveRequested,
    ModelAttacked,
    ModelDiverged,
    ModelsMerged,
    ModelsPooled,
    MovesWaited,
    OrganisationsAttested,
    PricesSet,
    RecordsChanged,
    RepresentativesPerturbed,
    RiskMeasured,
    RiskUnknown,
    RoundMeasured,
    RunFinished,
    RunRolledBack,
    RunStarted,
    StepsPerturbed,
    SumGivenUp,
    SumPerturbed,
    ThresholdChanged,
    WeightReduced,
)
from covey.base.history import History, of_kinds
from covey.base.names import Handle
from covey.heads.perturbed import HeadNoise

Unit = Literal["client", "record"]
"""Whose presence is hidden: all of a client's examples, or one of them."""
UNITS: tuple[Unit, ...] = get_args(Unit)


@dataclass(frozen=True, slots=True)
class Guarantee:
    """How much the releases of a run tell about one client, or about one record.

    Whatever an adversary does with them, no event becomes more than exp(epsilon) times as
    likely by that client or record, plus delta.

    Attributes:
        epsilon: None where nothing is guaranteed; `reason` says why.
        delta: the slack that is added to every probability.
        unit: what is hidden: a client or a record.
        relation: how two neighbouring sets of data differ.
        adversary: who sees what.
        covers: releases that are paid for in epsilon.
        does_not_cover: releases and adversaries that are not.
        holds_if: what must be true, and what nothing here enforces.
        accountant: what added up the cost.
        noise_multiplier: the smallest z of all releases.
    """

    epsilon: float | None
    reason: str
    delta: float
    unit: Unit
    relation: str
    adversary: str
    covers: tuple[str, ...]
    does_not_cover: tuple[str, ...]
    holds_if: tuple[str, ...]
    accountant: str | None
    noise_multiplier: float | None


@dataclass(frozen=True, slots=True)
class HeadBound:
    """A client's records in released heads.

    Attributes:
        heads: how many they were in.
        weight: the largest weight that they had.
        bound: how often anybody is right at most about whether one of them was there, who
            has all of these heads.
    """

    heads: int
    weight: float
    bound: float


def head_bounds(facts: Iterable[Event]) -> Mapping[Handle, HeadBound]:
    """Return the bounds of all who use a head under noise, or did."""
    releases: dict[Handle, list[HeadPerturbed]] = {}
    for fact in facts:
        if isinstance(fact, HeadPerturbed):
            for handle in fact.weights:
                releases.setdefault(handle, []).append(fact)
    return {handle: _bound(handle, own) for handle, own in sorted(releases.items())}


def _bound(handle: Handle, facts: list[HeadPerturbed]) -> HeadBound:
    inside = [each for each in facts if each.weights[handle] > 0]
    if not inside:
        return HeadBound(0, 0.0, 0.5)
    weight = max(each.weights[handle] for each in inside)
    bound = weakest_noise(inside).success(weight, len(inside))
    return HeadBound(len(inside), weight, bound)


def weakest_noise(heads: Sequence[HeadPerturbed]) -> HeadNoise:
    """Return noise that hides no more than that of any of these heads."""
    return HeadNoise(
        clip=max(each.clip for each in heads),
        multiplier=min(each.noise_multiplier for each in heads),
        regularisation=min(each.regularisation for each in heads),
        classes=max(each.classes for each in heads),
    )


ADVERSARY: Mapping[Unit, str] = {
    "client": "sees every cluster model of every round, other clients included",
    "record": "sees everything that a client sends, the server included",
}
RELATION: Mapping[tuple[Unit, str], str] = {
    ("client", "contributes or not"): (
        "one client's updates count or are zero; that it takes part is known"
    ),
    ("client", "replaced by another"): (
        "one client's examples are replaced by any others; that it takes part is known"
    ),
    ("record", "contributes or not"): "one example of one client is there or not",
    ("record", "replaced by another"): "one example of one client is another one",
}
RELEASES: Mapping[Unit, str] = {
    "client": "every cluster model of every round",
    "record": "every update that a client sends",
}
SECRET = (
    "nobody learns what was drawn: the run's secret, who was sampled, who spoke for a set",
    "draws of ChaCha20, rounded to a grid, are as good as real Gaussian noise, and sums of "
    "floats as exact ones",
)
HOLDS_IF: Mapping[Unit, tuple[str, ...]] = {
    "client": (*SECRET, "a client takes part under one name only"),
    "record": (
        *SECRET,
        "the server learns no client's draws; in a simulation one process plays both",
        "every client clips and adds noise as its recipe says",
    ),
}
HEADS_HOLD_IF = (
    "no record's residual in a head without it is above privacy.record_clip: a release "
    "where one is, is refused",
    "no data are told apart better than a record whose direction nobody shares, or all "
    "do: searched for, not proved",
)
REFUSALS = "that a head was not released, as a record's residual was above the bound"
SEEDED = (
    "all that is drawn follows from the run's seed (secrets.source = 'seeded'), and "
    "whoever holds it takes the noise off again"
)
STORED = "raw updates that the server keeps (unlearning.store_updates)"
SERVER = (
    "the server itself: it sees each update before there is noise, and is trusted to add "
    "the noise and to forget"
)
NOT_ACCOUNTED = "no mechanism of this run is accounted for as differentially private"
"""Why there is no guarantee, whatever noise was added."""
NOISY_CHOICES = "every choice of a cluster, given what is not covered"
CHOICES = "which cluster a client chose: the rest holds given the choices"
COUNTS = "how many examples a client holds: its steps and its weight follow from it"
DIAMETERS = "how far apart the updates of an anonymity set are"
OWN_FEATURES = (
    "a feature map that covey does not bring: the rest holds if it looks at one record at "
    "a time, and holds nobody's data"
)
AUDITED = "a simulation's own audit at the end: true risk, exposure, fairness"
OPEN: Mapping[type[Event], str] = {
    RiskMeasured: "risk figures, which members' scores make: the rest holds given them",
    GroupsSought: "the warm start's split by what clients sent: the rest holds given it",
    PricesSet: "prices, which follow what clients wished: the rest holds given them",
    ModelsPooled: "how clusters are pooled and weighted: the rest holds given that",
    AnswerRefused: "whose answers were refused, and why",
    WeightReduced: "who has far more examples than most, and how many",
    ModelDiverged: "whether a model diverged: its clients' losses and refusals show it",
    ClientsReported: "what clients tell of themselves: accuracies, and one bit each",
    RoundMeasured: "how many clients are in each cluster",
    ClusterAudited: AUDITED,
    ModelAttacked: AUDITED,
    ClientExposed: AUDITED,
    FairnessMeasured: AUDITED,
}
"""Events that are published without noise, and how a guarantee says that."""

ALWAYS_OPEN = (
    "what was decided by looking at results: settings, when to stop, which run to keep",
    "the ledger, checkpoints, reports and proofs: who took part where and how often, true "
    "groups, hashes of the examples",
    "how long anything took",
)


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


@dataclass(frozen=True, slots=True)
class GuaranteeStatus:
    """Which guarantees a run gives, and which of them holds.

    Attributes:
        guarantees: all that noise was added for, the client's first.
        holds: the first of them that has an epsilon; a client's hides each of its
            records, too.
        reason: why none holds; empty if one does.
    """

    guarantees: tuple[Guarantee, ...]
    holds: Guarantee | None
    reason: str


def guarantee_status(history: History) -> GuaranteeStatus:
    """Return what all rounds ever played guarantee, rolled back ones included."""
    began, found = history.started, ()
    if began is not None and _has_noise(history.told):
        # loads SciPy, which takes a second: only for a run with noise
        from covey.dp.run_guarantees import guarantees

        secret = began.secrets == "os"
        found = guarantees(history.told, began.delta, secret=secret)
    holds = next((each for each in found if each.epsilon is not None), None)
    why_not = found[0].reason if found else NOT_ACCOUNTED
    return GuaranteeStatus(found, holds, "" if holds else why_not)


def epsilon_over_rounds(history: History, points: int) -> dict[Unit, list[tuple[int, float]]]:
    """Return per unit what had been spent after so many merges, at about `points` places.

    Empty for a unit as soon as nothing is guaranteed any more.
    """
    merges = [each for each in aggregations_of(history.told) if _is_merge(each)]
    places = sorted({round(len(merges) * i / points) for i in range(1, points + 1)})
    lines: dict[Unit, list[tuple[int, float]]] = {}
    for place in places:
        part = tuple(fact for merge in merges[:place] for fact in merge)
        told = history.told if place == len(merges) else part
        for each in guarantee_status(replace(history, told=told)).guarantees:
            line = lines.setdefault(each.unit, [])
            if each.epsilon is not None:
                line.append((place, each.epsilon))
    return {
        unit: line if line and line[-1][0] == places[-1] else [] for unit, line in lines.items()
    }


def _has_noise(facts: Sequence[Event]) -> bool:
    noise = of_kinds(facts, *NOISE)
    return any(hides(fact, unit) for fact in noise for unit in UNITS)


def _is_merge(part: Sequence[Event]) -> bool:
    return any(isinstance(fact, ModelsMerged) for fact in part)
