"""One attack's figures, overall and for parts of the records: groups, classes, ease."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from covey.membership.audit_set import Candidates
from covey.membership.intervals import AttackMetrics, attack_metrics, roc
from covey.membership.signals import Signals, of_label
from covey.rng import Streams

__all__ = ["QUARTERS", "AttackFigures", "attack_figures", "quarters"]

QUARTERS = ("easiest", "easy", "hard", "hardest")


@dataclass(frozen=True, slots=True)
class AttackFigures:
    """What one attack achieves on one cluster model.

    Attributes:
        by_group: per index of a group; "" where the clients have no known group.
        by_class: per label.
        by_difficulty: per quarter of each group's records, from those that models know
            well without having seen them to those that they get wrong; empty where a
            record has no reference outside of it.
        roc: (FPR, TPR), FPR from 1 / non-members on.
    """

    overall: AttackMetrics
    by_group: Mapping[str, AttackMetrics]
    by_class: Mapping[str, AttackMetrics]
    by_difficulty: Mapping[str, AttackMetrics]
    roc: tuple[tuple[float, float], ...]


def attack_figures(
    scores: Float[ndarray, " records"],
    candidates: Candidates,
    signals: Signals,
    streams: Streams,
) -> AttackFigures:
    """Judge the scores, overall and in each part; thresholds are fitted in the part."""

    def judged(among: Bool[ndarray, " records"], *name: str) -> AttackMetrics:
        return attack_metrics(candidates.sides(scores, among), streams.at(*name))

    everybody = np.ones(len(scores), dtype=bool)
    parts: dict[str, dict[str, AttackMetrics]] = {}
    for kind, name, among in _parts(candidates, signals):
        parts.setdefault(kind, {})[name] = judged(among, kind, name)
    return AttackFigures(
        overall=judged(everybody, "overall"),
        by_group=parts["group"],
        by_class=parts["class"],
        by_difficulty=parts.get("difficulty", {}),
        roc=roc(candidates.sides(scores, everybody)),
    )


def quarters(candidates: Candidates, signals: Signals) -> Int[ndarray, " records"]:
    """Return 0 (easiest) to 3 by the mean loss under references outside of the record.

    Their loss does not depend on who is a member; ranked within each group.
    """
    losses = -of_label(signals.references, signals.labels)
    outside = losses.mean(axis=1, where=~signals.inside)
    from scipy.stats import rankdata

    found = np.zeros(len(outside), dtype=np.int64)
    for place in range(len(candidates.strata)):
        here = candidates.stratum == place
        ranks = rankdata(outside[here], method="ordinal") - 1
        found[here] = ranks * len(QUARTERS) // here.sum()
    return found


def _parts(
    candidates: Candidates, signals: Signals
) -> Iterator[tuple[str, str, Bool[ndarray, " records"]]]:
    for place, stratum in enumerate(candidates.strata):
        name = "" if stratum.group is None else str(stratum.group)
        yield "group", name, candidates.stratum == place
    for label in range(signals.target.shape[1]):
        yield "class", str(label), signals.labels == label
    if not (~signals.inside).any(axis=1).all():
        return
    quarter = quarters(candidates, signals)
    for index, name in enumerate(QUARTERS):
        yield "difficulty", name, quarter == index
