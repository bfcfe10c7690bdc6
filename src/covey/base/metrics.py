"""What a run is judged by, as pure functions: gaps between groups, and agreement."""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int, Shaped
from numpy import ndarray

from covey.base.events import FairnessMeasured
from covey.base.figure import Figure

GAPS = ("demographic_parity", "equal_opportunity", "equalized_odds")
PERMUTATIONS = 200
RESAMPLES = 1_000
FEWEST = 10
"""Examples of a class, and of the rest, that each group must have for a rate."""
FEW = f"some group has fewer than {FEWEST} test examples of a class"


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


def one_vs_rest_gaps(judged: Judged, fewest: int = FEWEST) -> Float[ndarray, "gaps classes"]:
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
    right, positive = in_group @ (says * is_class), in_group @ is_class
    return _gaps(_rates(right, positive, in_group @ says, total, fewest))


def fairness(
    judged: Judged, generator: np.random.Generator, fewest: int = FEWEST
) -> tuple[FairnessMeasured, ...]:
    """Return mean and maximum of each gap, its interval, and what chance alone does.

    The gaps are those of what all models say, weighted by who uses them, where that is
    known, with a 95% interval of their mean (`bootstrapped`); else they are of the
    examples that clients answered in turns, without an interval.

    The null shuffles which group each of these examples belongs to; a shuffle that leaves
    a group without a class has no gap and does not count. The maximum over ten classes
    is well above 0 even where there is no disparity at all.
    """
    if len(np.unique(judged.groups)) < 2:
        return ()
    in_turns = one_vs_rest_gaps(judged, fewest)
    null = np.stack(
        [
            _means(one_vs_rest_gaps(_shuffled(judged, generator), fewest))
            for _ in range(PERMUTATIONS)
        ]
    )
    at_least = (null >= _means(in_turns)).sum(axis=0)
    p_values = (1 + at_least) / (1 + np.isfinite(null).sum(axis=0))
    gaps, reach, use = in_turns, np.full(len(GAPS), np.nan), judged.by_model
    if use is not None:
        gaps = _gaps(_rates_of_clients(use, fewest))[:, 0]
        reach = np.quantile(bootstrapped(use, generator, fewest), 0.95, axis=1)
    return tuple(
        FairnessMeasured(
            gap=gap,
            mean=Figure(
                _known(mean),
                low=_known(np.maximum(mean - most, 0)),
                high=_known(np.minimum(mean + most, 1)),
                reason=FEW if np.isnan(mean) else "",
            ),
            maximum=_known(np.max(row)),
            p_value=None if np.isnan(mean) else float(p),
        )
        for gap, row, mean, p, most in zip(GAPS, gaps, _means(gaps), p_values, reach, strict=True)
    )


def bootstrapped(
    by_model: ByModel, generator: np.random.Generator, fewest: int = FEWEST
) -> Float[ndarray, "gaps resamples"]:
    """Return how far rates move, in gaps, for clients and test examples drawn anew.

    A gap is a seminorm of the rates r, so that |gap(r*) - gap(r)| <= gap(r* - r): what is
    returned bounds how far each mean gap moves, where the gaps themselves only grow by
    chance, and their percentiles lie above what was found. A group's rates are those of
    its models, weighted by how many of its resampled clients use each. Then as many test
    examples as the group has are drawn, each answered by the model of a random client:
    models answer the same examples, so that errors may be shared, and their mean over
    models varies at most as much as one such answer. A class that a draw leaves out does
    not move.
    """
    weights = np.stack(
        [
            generator.multinomial(row.sum(), row / row.sum(), size=RESAMPLES)
            for row in by_model.clients
        ],
        axis=1,
    )
    counts = _mean_counts(by_model, weights)
    cells = counts.reshape(*counts.shape[:2], -1)
    tests = cells.sum(axis=-1, keepdims=True)
    drawn = generator.multinomial(tests[..., 0].round().astype(int), cells / tests)
    moved = _rates_of_counts(drawn.reshape(counts.shape), 1)
    unresampled = _rates_of_clients(by_model, fewest)
    unmoved = np.isnan(moved) & ~np.isnan(unresampled)
    return _gaps(np.where(unmoved, 0, moved - unresampled)).mean(axis=-1)


def _mean_counts(
    by_model: ByModel, users: Int[ndarray, "resamples groups clusters"]
) -> Float[ndarray, "resamples groups classes classes"]:
    """Return the mean counts where so many clients of each group use each model."""
    counts = np.einsum("bgj,gjtp->bgtp", users, by_model.confusions)
    return counts / by_model.clients.sum(axis=1)[:, None, None]


def _rates_of_clients(by_model: ByModel, fewest: int) -> Float[ndarray, "rates 1 groups classes"]:
    return _rates_of_counts(_mean_counts(by_model, by_model.clients[None]), fewest)


def _rates_of_counts(
    counts: Shaped[ndarray, "resamples groups classes classes"], fewest: int
) -> Float[ndarray, "rates resamples groups classes"]:
    right = np.diagonal(counts, axis1=-2, axis2=-1)
    is_class, says = counts.sum(axis=-1), counts.sum(axis=-2)
    return _rates(right, is_class, says, is_class.sum(axis=-1, keepdims=True), fewest)


def _rates(
    right: Shaped[ndarray, "*resamples groups classes"],
    is_class: Shaped[ndarray, "*resamples groups classes"],
    says: Shaped[ndarray, "*resamples groups classes"],
    total: Shaped[ndarray, "*resamples groups 1"],
    fewest: int,
) -> Float[ndarray, "rates *resamples groups classes"]:
    """Return shares of yes, of hits and of false alarms: P(c), P(c | y = c), P(c | y != c).

    Of counts of true positives, positives and answers of yes.
    """
    parts, wholes = (says, right, says - right), (total, is_class, total - is_class)
    return np.stack(
        [
            _share(part, np.broadcast_to(whole, part.shape), fewest)
            for part, whole in zip(parts, wholes, strict=True)
        ]
    )


def _gaps(
    rates: Float[ndarray, "rates *resamples groups classes"],
) -> Float[ndarray, "gaps *resamples classes"]:
    parity, hits, alarms = rates.max(axis=-2) - rates.min(axis=-2)
    return np.stack([parity, hits, np.maximum(hits, alarms)])


def _memberships(
    labels: Int[ndarray, "examples *label"], num_classes: int
) -> Float[ndarray, "examples classes"]:
    """Return 1 for each class that an example is in, else 0."""
    inside = labels == 1 if labels.ndim == 2 else labels[:, None] == np.arange(num_classes)
    return inside.astype(float)


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
