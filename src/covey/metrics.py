"""What a run is judged by, as pure functions: gaps between groups, and agreement."""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from covey.events import FairnessMeasured

__all__ = [
    "GAPS",
    "ByModel",
    "Judged",
    "bootstrapped",
    "fairness",
    "one_vs_rest_gaps",
]

GAPS = ("demographic_parity", "equal_opportunity", "equalized_odds")
PERMUTATIONS = 200
RESAMPLES = 1_000
FEWEST = 10
"""Examples of a class, and of the rest, that each group must have for a rate."""


@dataclass(frozen=True, slots=True, eq=False)
class ByModel:
    """What every model in use says on a group's whole test set, and who uses it.

    Attributes:
        confusions: test examples per true and predicted class.
        clients: how many clients of the group use the model.
    """

    confusions: Int[ndarray, "groups clusters classes classes"]
    clients: Int[ndarray, "groups clusters"]


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """Test examples, each answered by the model that a client of its group chose.

    Attributes:
        labels, predictions: class numbers; or several 0 or 1 per example, each of which
            is then a class that an example is in or not.
        num_classes: of classes, or of such labels.
    """

    labels: Int[ndarray, "examples *label"]
    predictions: Int[ndarray, "examples *label"]
    groups: Int[ndarray, " examples"]
    num_classes: int
    by_model: ByModel | None = None


def one_vs_rest_gaps(
    judged: Judged, fewest: int = FEWEST
) -> Float[ndarray, "gaps classes"]:
    """Return, per class c, how far apart the groups are (largest minus smallest rate).

    demographic parity  P(yhat = c | g)
    equal opportunity   P(yhat = c | y = c, g)
    equalized odds      the larger gap of P(yhat = c | y = c, g), P(yhat = c | y != c, g)

    A class of which some group has fewer than `fewest` examples gives NaN, not 0.

    References:
        IFCA-MIR, Definitions 1-3, made one-vs-rest as fairlearn's maintainers advise.
    """
    says = _memberships(judged.predictions, judged.num_classes)
    is_class = _memberships(judged.labels, judged.num_classes)
    in_group = np.equal.outer(np.unique(judged.groups), judged.groups).astype(float)
    total = in_group.sum(axis=1, keepdims=True)
    return _gaps(
        in_group @ (says * is_class),
        in_group @ is_class,
        in_group @ says,
        total,
        fewest,
    )


def fairness(
    judged: Judged, generator: np.random.Generator, fewest: int = FEWEST
) -> tuple[FairnessMeasured, ...]:
    """Return mean and maximum of each gap, its interval, and what chance alone does.

    The null shuffles which group each example belongs to; a shuffle that leaves a group
    without a class has no gap and does not count. The maximum over ten classes
    is well above 0 even where there is no disparity at all. The interval is of the mean
    gap, see `bootstrapped`; None where it is not known who uses which model.
    """
    if len(np.unique(judged.groups)) < 2:
        return ()
    found = one_vs_rest_gaps(judged, fewest)
    null = np.stack(
        [
            _means(one_vs_rest_gaps(_shuffled(judged, generator), fewest))
            for _ in range(PERMUTATIONS)
        ]
    )
    at_least = (null >= _means(found)).sum(axis=0)
    p_values = (1 + at_least) / (1 + np.isfinite(null).sum(axis=0))
    limits = _limits(judged, generator, fewest)
    return tuple(
        FairnessMeasured(
            gap=gap,
            mean=_known(mean),
            maximum=_known(np.max(row)),
            p_value=None if np.isnan(mean) else float(p),
            low=_known(low),
            high=_known(high),
        )
        for gap, row, mean, p, (low, high) in zip(
            GAPS, found, _means(found), p_values, limits, strict=True
        )
    )


def bootstrapped(
    by_model: ByModel, generator: np.random.Generator, fewest: int = FEWEST
) -> Float[ndarray, "gaps resamples"]:
    """Return the mean gap over the classes, for clients resampled within their group.

    A group's confusion counts are those of its models, weighted by how many of its
    resampled clients use each. Only who the clients are is drawn anew, not the test
    examples: where a whole group uses one model, its rates do not vary.
    """
    weights = np.stack(
        [
            generator.multinomial(row.sum(), row / row.sum(), size=RESAMPLES)
            for row in by_model.clients
        ],
        axis=1,
    )
    counts = np.einsum("bgj,gjtp->bgtp", weights, by_model.confusions)
    clients = by_model.clients.sum(axis=1)[:, None, None]
    return _confusion_gaps(counts / clients, fewest).mean(axis=-1)


def _confusion_gaps(
    counts: Float[ndarray, "resamples groups classes classes"], fewest: int
) -> Float[ndarray, "gaps resamples classes"]:
    """Return the gaps of `one_vs_rest_gaps` for mean counts [..., true, predicted]."""
    right = np.diagonal(counts, axis1=-2, axis2=-1)
    is_class, says = counts.sum(axis=-1), counts.sum(axis=-2)
    return _gaps(right, is_class, says, is_class.sum(axis=-1, keepdims=True), fewest)


def _gaps(
    right: Float[ndarray, "*resamples groups classes"],
    is_class: Float[ndarray, "*resamples groups classes"],
    says: Float[ndarray, "*resamples groups classes"],
    total: Float[ndarray, "*resamples groups 1"],
    fewest: int,
) -> Float[ndarray, "gaps *resamples classes"]:
    """Return the gaps for counts of true positives, positives and answers of yes."""

    def gap(part: ndarray, whole: ndarray) -> ndarray:
        rates = _share(part, np.broadcast_to(whole, part.shape), fewest)
        return rates.max(axis=-2) - rates.min(axis=-2)

    hits = gap(right, is_class)
    alarms = gap(says - right, total - is_class)
    return np.stack([gap(says, total), hits, np.maximum(hits, alarms)])


def _memberships(
    labels: Int[ndarray, "examples *label"], num_classes: int
) -> Float[ndarray, "examples classes"]:
    """Return 1 for each class that an example is in, else 0."""
    inside = (
        labels == 1 if labels.ndim == 2 else labels[:, None] == np.arange(num_classes)
    )
    return inside.astype(float)


def _limits(
    judged: Judged, generator: np.random.Generator, fewest: int
) -> Float[ndarray, "gaps two"]:
    if judged.by_model is None:
        return np.full((len(GAPS), 2), np.nan)
    drawn = bootstrapped(judged.by_model, generator, fewest)
    return np.quantile(drawn, [0.025, 0.975], axis=1).T


def _share(part: ndarray, whole: ndarray, fewest: int) -> Float[ndarray, "*shape"]:
    """Return part / whole, NaN where the whole is fewer than `fewest`."""
    enough = whole >= max(1, fewest) - 1e-9  # mean counts are rounded
    return np.where(enough, part / np.where(enough, whole, 1), np.nan)


def _means(gaps: Float[ndarray, "gaps classes"]) -> Float[ndarray, " gaps"]:
    return gaps.mean(axis=1)


def _shuffled(judged: Judged, generator: np.random.Generator) -> Judged:
    groups = generator.permutation(judged.groups)
    return replace(judged, groups=groups)


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
