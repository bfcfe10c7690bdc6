"""What a run guarantees so far, what it is about, and which facts it can speak of."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from covey.base.as_json import HIDDEN
from covey.base.events import (
    Event,
    ModelsMerged,
    RepresentativesPerturbed,
    RunFinished,
    SharesPerturbed,
    StepsPerturbed,
    SumPerturbed,
    UpdatesPerturbed,
)
from covey.base.names import Unit
from covey.unlearning.guarantee import NoGuarantee


@dataclass(frozen=True, slots=True)
class Guarantee:
    """How much the releases of a run reveal about one client, or about one record.

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
        reason_code: of the reason, for proofs.
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
    reason_code: NoGuarantee | None = field(default=None, metadata=HIDDEN)

    @property
    def sentence(self) -> str:
        """What is guaranteed, or why nothing is; what it does not cover stands elsewhere."""
        unit = f"a {self.unit} ({self.relation})"
        if self.epsilon is None:
            return f"no guarantee for {unit}: {self.reason}"
        return (
            f"epsilon {self.epsilon:.3g} at delta {self.delta:g} for {unit}, against an "
            f"adversary that {self.adversary}"
        )


NOISE = (
    *(SumPerturbed, SharesPerturbed, UpdatesPerturbed, RepresentativesPerturbed),
    StepsPerturbed,
)
"""What `hides` may be true of."""


def hides(fact: Event, unit: Unit) -> bool:
    """Say whether this fact records noise that is in units of this: a client, or a record."""
    if isinstance(fact, SumPerturbed | SharesPerturbed):
        return fact.unit == unit
    if unit == "record":
        return isinstance(fact, StepsPerturbed)
    return isinstance(fact, UpdatesPerturbed | RepresentativesPerturbed)


def aggregations_of(facts: Sequence[Event]) -> Iterator[tuple[Event, ...]]:
    """Cut a run's events after every aggregation and every end; the rest comes last."""
    part: list[Event] = []
    for fact in facts:
        part.append(fact)
        if isinstance(fact, ModelsMerged | RunFinished):
            yield tuple(part)
            part = []
    yield tuple(part)
