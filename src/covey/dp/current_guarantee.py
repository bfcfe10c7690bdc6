"""What a run guarantees so far, what it is about, and which facts it can speak of."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from covey.base.events import (
    Event,
    HeadPerturbed,
    ModelsMerged,
    RepresentativesPerturbed,
    RunFinished,
    StepsPerturbed,
    SumPerturbed,
)
from covey.base.history import History, of_kinds
from covey.base.names import Handle
from covey.heads.perturbed import HeadNoise
from covey.unlearning.facts import HeadsHeld

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


def head_bounds(facts: Iterable[Event]) -> Mapping[Handle, HeadsHeld]:
    """Return the bounds of all who use a head under noise, or did."""
    releases: dict[Handle, list[HeadPerturbed]] = {}
    for fact in facts:
        if isinstance(fact, HeadPerturbed):
            for handle in fact.weights:
                releases.setdefault(handle, []).append(fact)
    found: dict[Handle, HeadsHeld] = {}
    for handle, own in sorted(releases.items()):
        inside = [each for each in own if each.weights[handle] > 0]
        weight = max((each.weights[handle] for each in inside), default=0.0)
        bound = weakest_noise(inside).success(weight, len(inside)) if inside else 0.5
        found[handle] = HeadsHeld(len(inside), weight, bound)
    return found


def weakest_noise(heads: Sequence[HeadPerturbed]) -> HeadNoise:
    """Return noise that hides no more than that of any of these heads."""
    return HeadNoise(
        clip=max(each.clip for each in heads),
        multiplier=min(each.noise_multiplier for each in heads),
        regularisation=min(each.regularisation for each in heads),
        classes=max(each.classes for each in heads),
    )


NOT_ACCOUNTED = "no mechanism of this run is accounted for as differentially private"
"""Why there is no guarantee, whatever noise was added."""

NOISE = (SumPerturbed, HeadPerturbed, RepresentativesPerturbed, StepsPerturbed)
"""What `hides` may be true of."""


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
    noise = of_kinds(history.told, *NOISE)
    if began is not None and any(hides(fact, unit) for fact in noise for unit in UNITS):
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
    parts = aggregations_of(history.told)
    merges = [part for part in parts if any(isinstance(fact, ModelsMerged) for fact in part)]
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
