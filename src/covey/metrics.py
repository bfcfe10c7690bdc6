"""What a run is judged by, as pure functions: gaps between groups, and agreement."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from covey.events import FairnessMeasured

__all__ = ["GAPS", "Judged", "fairness", "one_vs_rest_gaps"]

GAPS = ("demographic_parity", "equal_opportunity", "equalized_odds")
PERMUTATIONS = 200


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """Test examples, each answered by the model that a client of its group chose."""

    labels: Int[ndarray, " examples"]
    predictions: Int[ndarray, " examples"]
    groups: Int[ndarray, " examples"]
    num_classes: int


def one_vs_rest_gaps(judged: Judged) -> Float[ndarray, "gaps classes"]:
    """Return, per class c, how far apart the groups are (largest minus smallest rate).

    demographic parity  P(yhat = c | g)
    equal opportunity   P(yhat = c | y = c, g)
    equalized odds      the larger gap of P(yhat = c | y = c, g), P(yhat = c | y != c, g)

    A class that some group has no example of gives NaN, not 0.

    References:
        IFCA-MIR, Definitions 1-3, made one-vs-rest as fairlearn's maintainers advise.
    """
    classes = np.arange(judged.num_classes)
    says = judged.predictions[:, None] == classes
    is_class = judged.labels[:, None] == classes
    groups = [judged.groups == group for group in np.unique(judged.groups)]
    everyone = np.ones_like(is_class)
    selected = _range([_rate(says[g], everyone[g]) for g in groups])
    hits = _range([_rate(says[g], is_class[g]) for g in groups])
    alarms = _range([_rate(says[g], ~is_class[g]) for g in groups])
    return np.stack([selected, hits, np.maximum(hits, alarms)])


def fairness(
    judged: Judged, generator: np.random.Generator
) -> tuple[FairnessMeasured, ...]:
    """Return mean and maximum of each gap, and how often chance alone does as much.

    The null shuffles which group each example belongs to; a shuffle that leaves a group
    without a class has no gap and does not count. The maximum over ten classes
    is well above 0 even where there is no disparity at all.
    """
    if len(np.unique(judged.groups)) < 2:
        return ()
    found = one_vs_rest_gaps(judged)
    null = np.stack(
        [
            _means(one_vs_rest_gaps(_shuffled(judged, generator)))
            for _ in range(PERMUTATIONS)
        ]
    )
    at_least = (null >= _means(found)).sum(axis=0)
    p_values = (1 + at_least) / (1 + np.isfinite(null).sum(axis=0))
    return tuple(
        FairnessMeasured(
            gap=gap,
            mean=_known(mean),
            maximum=_known(np.max(row)),
            p_value=None if np.isnan(mean) else float(p),
        )
        for gap, row, mean, p in zip(GAPS, found, _means(found), p_values, strict=True)
    )


def _rate(answers: ndarray, condition: ndarray) -> Float[ndarray, " classes"]:
    """Return the share of yes among the examples that meet the condition, per class."""
    with np.errstate(invalid="ignore"):
        return (answers & condition).sum(axis=0) / condition.sum(axis=0)


def _range(rates: list[Float[ndarray, " classes"]]) -> Float[ndarray, " classes"]:
    return np.max(rates, axis=0) - np.min(rates, axis=0)


def _means(gaps: Float[ndarray, "gaps classes"]) -> Float[ndarray, " gaps"]:
    return gaps.mean(axis=1)


def _shuffled(judged: Judged, generator: np.random.Generator) -> Judged:
    groups = generator.permutation(judged.groups)
    return Judged(judged.labels, judged.predictions, groups, judged.num_classes)


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
