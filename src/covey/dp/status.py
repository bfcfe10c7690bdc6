"""What a guarantee is, which of a run's holds, and how it was spent."""

from dataclasses import dataclass, field, replace

from covey.base.as_json import HIDDEN
from covey.base.events import ModelsMerged
from covey.base.guarantee import NoGuarantee
from covey.base.history import History
from covey.base.names import Unit
from covey.dp.releases import aggregations_of, releases_in


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


@dataclass(frozen=True, slots=True)
class GuaranteeStatus:
    """Which guarantees a run gives, and which of them holds.

    Attributes:
        guarantee: the strongest that holds: the first that has an epsilon; a client's hides
            each of its records, too.
        guarantee_reason: why none holds; empty if one does.
        guarantees: all that noise was added for, the client's first.
        reason_code: of the reason, for proofs.
    """

    guarantee: Guarantee | None
    guarantee_reason: str
    guarantees: tuple[Guarantee, ...]
    reason_code: NoGuarantee | None = field(default=None, metadata=HIDDEN)


def guarantee_status(history: History) -> GuaranteeStatus:
    """Return what all rounds ever played guarantee, rolled back ones included."""
    began, guaranteed = history.started, ()
    if began is not None and any(release.unit for release in releases_in(history.all_events)):
        # loads SciPy, which takes a second: only for a run with noise
        from covey.dp.run_guarantees import guarantees

        secret = began.secrets == "os"
        guaranteed = guarantees(history.all_events, began.delta, secret=secret)
    holds = next((guarantee for guarantee in guaranteed if guarantee.epsilon is not None), None)
    if holds:
        return GuaranteeStatus(holds, "", guaranteed)
    code = guaranteed[0].reason_code if guaranteed else NoGuarantee.NOT_ACCOUNTED
    return GuaranteeStatus(
        None, guaranteed[0].reason if guaranteed else str(code), guaranteed, code
    )


def epsilon_over_rounds(history: History, points: int) -> dict[Unit, list[tuple[int, float]]]:
    """Return per unit what had been spent after so many merges, at about `points` places.

    Empty for a unit as soon as nothing is guaranteed any more.
    """
    parts = aggregations_of(history.all_events)
    merges = [part for part in parts if any(isinstance(fact, ModelsMerged) for fact in part)]
    places = sorted({round(len(merges) * i / points) for i in range(1, points + 1)})
    lines: dict[Unit, list[tuple[int, float]]] = {}
    for place in places:
        part = tuple(fact for merge in merges[:place] for fact in merge)
        released = history.all_events if place == len(merges) else part
        for guarantee in guarantee_status(replace(history, all_events=released)).guarantees:
            line = lines.setdefault(guarantee.unit, [])
            if guarantee.epsilon is not None:
                line.append((place, guarantee.epsilon))
    return {
        unit: line if line and line[-1][0] == places[-1] else [] for unit, line in lines.items()
    }
