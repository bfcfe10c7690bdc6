"""Solved heads of true groups: accuracy, true risk, and the risk that is known exactly."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import fmean, stdev

from covey.build import BuiltRun, build_run
from covey.config import load_config
from covey.engine import LocalRecords, ScoringJob, params_of, width_of
from covey.heads import WEIGHT_STEPS, ClusterSums, scores_without_records
from covey.membership import (
    likelihood_ratio_risk,
    loss_threshold_risk,
    true_risk,
)
from covey.types import Params

__all__ = ["HeadFigures", "HeadMeans", "agreement", "head_figures", "head_means"]

SETTINGS = (
    "model.name=linear-head",
    "method.name=solved",
    "method.initialisation=groups",
    "method.pooling=0",
    "redteam.source=none",
)


@dataclass(frozen=True, slots=True)
class HeadFigures:
    """One group's head.

    Attributes:
        accuracy: on its group's test images.
        true_risk: of a loss threshold, against matched non-members.
        left_out_risk: of a loss threshold, against its own records left out.
        errors: the standard errors of both.
        likelihood_ratio: the risk by the likelihood ratio; no upper bound.
    """

    settings: str
    seed: int
    group: str
    pooling: float
    regularisation: float
    accuracy: float
    true_risk: float
    left_out_risk: float
    errors: tuple[float, float]
    likelihood_ratio: float


@dataclass(frozen=True, slots=True)
class HeadMeans:
    """The mean over seeds, and the standard deviation of the accuracy."""

    settings: str
    group: str
    pooling: float
    regularisation: float
    accuracy: float
    deviation: float
    true_risk: float
    likelihood_ratio: float


def head_figures(
    path: Path,
    seed: int,
    dials: tuple[Sequence[float], Sequence[float]],
    options: Iterable[str] = (),
) -> list[HeadFigures]:
    """Solve every group's head for each pooling and regularisation, and measure it.

    Args:
        path: settings of a population with groups.
        seed: of the run.
        dials: the poolings and the regularisations.
        options: further `section.key=value`.
    """
    run = build_run(load_config(path, [*SETTINGS, f"seed={seed}", *options]))
    records = run.records
    assert records is not None  # a linear head has features  # noqa: S101
    state = run.strategy.init(run.streams)
    d = width_of(state.clusters[0])
    groups = range(len(run.population.groups))
    members = [[c for c in run.population.clients if c.group == g] for g in groups]
    sums = tuple(
        records.sums([(c.train, WEIGHT_STEPS) for c in own], d) for own in members
    )
    found: list[HeadFigures] = []
    for pooling, regularisation in product(*dials):
        n = len(sums)
        solved = ClusterSums(
            pooling=(pooling,) * n, regularisation=(regularisation,) * n
        )
        for g in groups:
            measured = _measured(run, records, solved.of(sums, {}), g)
            group = run.population.groups[g].name
            dial = (pooling, regularisation)
            found.append(HeadFigures(path.stem, seed, group, *dial, *measured))
    return found


def _measured(
    run: BuiltRun, records: LocalRecords, solved: ClusterSums, g: int
) -> tuple[float, float, float, tuple[float, float], float]:
    members = tuple(c for c in run.population.clients if c.group == g)
    head = solved.head(g)
    at = run.streams.at("bench", g)
    truth = true_risk(run.engine, params_of(head), members, run.reference, at)
    assert truth is not None  # there are hundreds of records  # noqa: S101
    rows = [records.rows(c.train) for c in members]
    left = [scores_without_records(head, each) for each in rows]
    labels = [each.labels for each in rows]
    known = loss_threshold_risk(records, labels, left, at)
    return (
        _accuracy(run, params_of(head), g),
        truth.risk,
        known.risk,
        (truth.standard_error, known.standard_error),
        likelihood_ratio_risk(left).risk,
    )


def _accuracy(run: BuiltRun, params: Params, g: int) -> float:
    (scored,) = run.engine.score([ScoringJob(params, run.population.test[g])])
    assert scored.correct is not None  # labels are classes  # noqa: S101
    return float(scored.correct.double().mean())


def head_means(rows: Iterable[HeadFigures]) -> list[HeadMeans]:
    """Return the means over seeds."""
    alike: dict[tuple[str, str, float, float], list[HeadFigures]] = {}
    for row in rows:
        key = (row.settings, row.group, row.pooling, row.regularisation)
        alike.setdefault(key, []).append(row)
    return [
        HeadMeans(
            *key,
            accuracy=fmean(r.accuracy for r in own),
            deviation=stdev(r.accuracy for r in own) if len(own) > 1 else 0.0,
            true_risk=fmean(r.true_risk for r in own),
            likelihood_ratio=fmean(r.likelihood_ratio for r in own),
        )
        for key, own in alike.items()
    ]


def agreement(rows: Sequence[HeadFigures]) -> float:
    """Return how often the left-out risk is within max(.03, 2 SE) of the true one."""
    near = [
        abs(r.true_risk - r.left_out_risk)
        <= max(0.03, 2 * (r.errors[0] ** 2 + r.errors[1] ** 2) ** 0.5)
        for r in rows
    ]
    return fmean(near)
