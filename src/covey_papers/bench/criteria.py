"""How well a source knows the truth, and whether that is well enough."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import spearmanr

from covey.components import Capability, find
from covey.membership import EXTRAPOLATED, RiskEstimate
from covey_papers.bench.measure import RANDOM_LABELS, SOURCES, Measured, Row
from covey_papers.bench.profiler import Cost

__all__ = [
    "NEAR",
    "Check",
    "Costs",
    "Knowledge",
    "checks",
    "costs_of",
    "error_of",
    "is_right",
    "knowledge",
]

NEAR = 0.03
"""MIA accuracy within which a figure counts as right, however sure it is of itself."""

USUAL_EVERY = 5
"""Rounds between two looks of a usual run; the bench looks more often."""


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What one source's calibrated figures are worth, over many cluster models.

    error = figure - truth;  its SE = sqrt(SE of the figure^2 + SE of the truth^2)

    Attributes:
        figures: how many it gave.
        within: share of them with |error| <= max(0.03, 2 SE).
        most_standard_errors: the largest |error| / SE.
        rank_correlation: Spearman's, of figures and truths over all sets.
        withheld: share of the models without a figure, among those that it could have
            given one for: for shadows, those that the server's pool can match in size.
        extrapolated: figures from smaller shadows, which count nowhere above.
        extrapolated_error: their mean |error|.
    """

    figures: int
    mean_error: float | None
    within: float | None
    largest_error: float | None
    most_standard_errors: float | None
    bias: float | None
    rank_correlation: float | None
    withheld: float
    extrapolated: int
    extrapolated_error: float | None


@dataclass(frozen=True, slots=True)
class Costs:
    """What looking costs beside training.

    Attributes:
        shadow_images, client_images: gradients of single images.
        shadow_seconds: seconds of the shadow source per second that training as many
            images takes clients: 1 is nothing but training.
        federated_share: of a run's seconds.

    Both as in a run that looks each 5 rounds; training does not depend on that.
    """

    shadow_images: int
    client_images: int
    shadow_seconds: float | None
    federated_share: float


@dataclass(frozen=True, slots=True)
class Check:
    """One figure of the bench against its limit."""

    name: str
    value: float | None
    limit: str
    ok: bool


def error_of(row: Row, source: str) -> tuple[float, float] | None:
    """Return a figure's error and its standard error; None where there is no figure."""
    told = row.told[source]
    if told.risk is None or told.standard_error is None:
        return None
    return told.risk - row.truth, float(np.hypot(told.standard_error, row.truth_error))


def is_right(error: float, standard_error: float) -> bool:
    """Say whether an error is at most max(0.03, 2 SE)."""
    return bool(abs(error) <= max(NEAR, 2 * standard_error))


def knowledge(rows: Sequence[Row], source: str) -> Knowledge:
    """Compare all figures of one source with the truth."""
    given = [row for row in rows if row.told[source].calibrated]
    matches = Capability.SERVER_DATA in find("risk_estimator", source, source).requires
    able = [row for row in rows if row.matchable or not matches]
    beyond = [r for r in rows if r.told[source].reason.startswith(EXTRAPOLATED)]
    pairs = np.array([error_of(row, source) for row in given], dtype=float)
    errors, errors_of_errors = pairs.reshape(-1, 2).T
    size = np.abs(errors)
    apart = [abs(e[0]) for row in beyond if (e := error_of(row, source))]
    return Knowledge(
        figures=len(given),
        mean_error=_mean(size),
        within=_mean(np.array([is_right(*pair) for pair in pairs])),
        largest_error=float(size.max()) if len(size) else None,
        most_standard_errors=float((size / errors_of_errors).max()) if given else None,
        bias=_mean(errors),
        rank_correlation=_spearman(given, source),
        withheld=1 - sum(r.told[source].calibrated for r in able) / max(1, len(able)),
        extrapolated=len(beyond),
        extrapolated_error=_mean(np.array(apart)),
    )


def _mean(values: np.ndarray) -> float | None:
    return float(values.mean()) if len(values) else None


def _spearman(rows: Sequence[Row], source: str) -> float | None:
    truths = [row.truth for row in rows]
    told = [row.told[source].risk for row in rows]
    if min(len(set(truths)), len(set(told))) < 2:
        return None
    return float(spearmanr(truths, told)[0])  # pyright: ignore[reportArgumentType]


def costs_of(measured: Sequence[Measured]) -> Costs:
    """Add up what every set took."""

    def total(part: str) -> Cost:
        return sum((each.costs[part] for each in measured), Cost())

    clients, shadows = total("clients"), total("shadow")
    alone = clients.training * shadows.images / max(1, clients.images)
    looking = {
        part: sum(
            (each.costs[part].seconds - each.costs[part].training)
            * each.rounds
            / (USUAL_EVERY * each.looks)
            for each in measured
        )
        for part in SOURCES
    }
    federated = looking["federated"]
    return Costs(
        shadow_images=shadows.images,
        client_images=clients.images,
        shadow_seconds=(
            (shadows.training + looking["shadow"]) / alone if shadows.images else None
        ),
        federated_share=federated / (federated + clients.seconds),
    )


LIMITS: Mapping[str, Mapping[str, tuple[str, float]]] = {
    "shadow": {
        "mean_error": ("<=", 0.03),
        "within": (">=", 0.9),
        "largest_error": ("<=", 0.06),
        "bias": ("+-", 0.015),
        "rank_correlation": (">=", 0.8),
        "withheld": ("<=", 0.2),
    },
    "federated": {
        "within": (">=", 0.85),
        "most_standard_errors": ("<=", 4.0),
        "bias": ("+-", 0.015),
        "rank_correlation": (">=", 0.8),
        "withheld": ("<=", 0.0),
    },
    "cost": {"shadow_seconds": ("<=", 1.15), "federated_share": ("<=", 0.05)},
}

ON_FEW_ROWS = (("federated", "most_standard_errors"), ("federated", "withheld"))
"""What a dozen small models can show; the rest takes the whole bench."""


def checks(measured: Sequence[Measured], *, whole: bool) -> tuple[Check, ...]:
    """Hold the figures to their limits: all of them, or those that few rows can show."""
    rows = [row for each in measured for row in each.rows]
    found = {source: knowledge(rows, source) for source in SOURCES}
    subjects = {**found, "cost": costs_of(measured)}
    failed = sum(
        not _as_known(name, figure)
        for each in measured
        for name, figure in each.controls.items()
    )
    return (
        _check("failed controls", float(failed), "<=", 0.0),
        *_limits_of(subjects, whole=whole),
    )


def _as_known(name: str, control: RiskEstimate) -> bool:
    """Say whether a control shows what it must, at 3 SE."""
    away = (control.risk - 0.5) / control.standard_error
    return away > 3 if name == RANDOM_LABELS else abs(away) <= 3


def _limits_of(
    subjects: Mapping[str, Knowledge | Costs], *, whole: bool
) -> tuple[Check, ...]:
    return tuple(
        _check(f"{subject} {name}", getattr(subjects[subject], name), *limit)
        for subject, limits in LIMITS.items()
        for name, limit in limits.items()
        if whole or (subject, name) in ON_FEW_ROWS
    )


def _check(name: str, value: float | None, sign: str, limit: float) -> Check:
    """Compare; no value is no success."""
    if value is None:
        return Check(name, None, f"{sign} {limit:g}", ok=False)
    ok = {"<=": value <= limit, ">=": value >= limit, "+-": abs(value) <= limit}[sign]
    return Check(name, value, f"{sign} {limit:g}", ok)
