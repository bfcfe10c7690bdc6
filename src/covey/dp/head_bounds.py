"""What all heads under noise together tell of each client's records, from facts alone."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from covey.events import Event, HeadPerturbed
from covey.heads import HeadNoise
from covey.types import Handle

__all__ = ["HeadBound", "head_bounds", "weakest_noise"]


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
