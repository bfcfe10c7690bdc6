"""Which guarantees a run gives, which of them holds, and how it was spent."""

from dataclasses import dataclass, field, replace

from covey.base.as_json import HIDDEN
from covey.base.events import ModelsMerged
from covey.base.history import History, of_kinds
from covey.base.names import UNITS, Unit
from covey.dp.current_guarantee import NOISE, Guarantee, aggregations_of, hides
from covey.unlearning.guarantee import NoGuarantee


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
    noise = of_kinds(history.all_events, *NOISE)
    if began is not None and any(hides(fact, unit) for fact in noise for unit in UNITS):
        # loads SciPy, which takes a second: only for a run with noise
        from covey.dp.run_guarantees import guarantees

        secret = began.secrets == "os"
        guaranteed = guarantees(history.all_events, began.delta, secret=secret)
    holds = next((each for each in guaranteed if each.epsilon is not None), None)
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
        for each in guarantee_status(replace(history, all_events=released)).guarantees:
            line = lines.setdefault(each.unit, [])
            if each.epsilon is not None:
                line.append((place, each.epsilon))
    return {
        unit: line if line and line[-1][0] == places[-1] else [] for unit, line in lines.items()
    }
