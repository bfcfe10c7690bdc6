"""Which records are exposed: losses that cost nothing, held to LiRA with many references.

Each reference is attacked in turn, by LiRA with a part of the others. Vulnerable are its
members that this LiRA says are members, at a low rate of non-members of which it says so
too. Then whoever else ranks the members is asked for the most exposed 1% of them.

References:
    Pollock, Shilov, Dodd, de Montjoye, 2024 (arXiv:2411.05743), section 4.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from covey.membership import lira_online, loss_drop, loss_spread, precision_at
from covey_papers.bench.reference_traces import ReferenceTraces

__all__ = ["RecordPrecision", "precisions"]

SHARE = 0.01


@dataclass(frozen=True, slots=True)
class RecordPrecision:
    """How many of the most exposed 1% by one score are vulnerable: over attacked models.

    Attributes:
        false_positives: at which vulnerable records are told, as a share of non-members.
        standard_error: of the mean; models share records, so that it is somewhat too low.
        models: how many were attacked.
    """

    score: str
    false_positives: float
    precision: float
    standard_error: float
    models: int


def precisions(
    known: ReferenceTraces, false_positives: tuple[float, ...] = (0.001, 0.01, 0.05)
) -> tuple[RecordPrecision, ...]:
    """Return every score's precision at the most exposed 1%.

    LiRA is judged by a LiRA with other references: half of them rank, half say what is
    vulnerable. Losses are judged by the same half.
    """
    found: dict[tuple[str, float], list[float]] = {}
    for model in range(known.inside.shape[1]):
        truth, ranking = _parts(known, model)
        members = known.inside[:, model]
        judged = _lira(known, model, truth)
        scores = {**_scores(known, model), LIRA: _lira(known, model, ranking)[members]}
        for rate in false_positives:
            vulnerable = _vulnerable(judged, members, rate)[members]
            for name, score in scores.items():
                share = precision_at(score, vulnerable, SHARE)
                found.setdefault((name, rate), []).append(share)
            found.setdefault((CHANCE, rate), []).append(float(vulnerable.mean()))
    return tuple(_rows(found))


LIRA = "LiRA, other references"
CHANCE = "any member (chance)"


def _parts(known: ReferenceTraces, model: int) -> tuple[list[int], list[int]]:
    """Divide the other references by pairs: each pair has every record inside once."""
    others = [i for i in range(known.inside.shape[1]) if i != model]
    return (
        [i for i in others if i // 2 % 2 == 0],
        [i for i in others if i // 2 % 2 == 1],
    )


def _lira(
    known: ReferenceTraces, model: int, references: list[int]
) -> Float[ndarray, " records"]:
    return lira_online(
        known.confidences[:, model],
        known.confidences[:, references],
        known.inside[:, references],
    )


def _scores(known: ReferenceTraces, model: int) -> Mapping[str, ndarray]:
    """Return what can be told of the members from their losses, in several ways."""
    members = known.inside[:, model]
    trained, received = known.trained[members, model], known.received[members, model]
    final, half = received[:, -1], trained.shape[1] // 2
    early, then = trained[:, :half], received[:, half - 1]
    return {
        "LT-IQR, as training sees them": loss_spread(trained),
        "upper quartile less last loss, as training sees them": loss_drop(
            trained, trained[:, -1]
        ),
        "the same, less the loss under the final model": loss_drop(trained, final),
        "LT-IQR, of the model after each round": loss_spread(received),
        "upper quartile less last loss, of the model after each round": loss_drop(
            received, final
        ),
        "at half of the rounds: LT-IQR, as training sees them": loss_spread(early),
        "at half of the rounds: the drop to the model that there is": loss_drop(
            early, then
        ),
        "mean loss, as training sees them": trained.mean(axis=1),
        "minus the loss under the final model": -final,
    }


def _vulnerable(
    scores: Float[ndarray, " records"], members: Bool[ndarray, " records"], rate: float
) -> Bool[ndarray, " records"]:
    """Return the members above the score of all but this share of the non-members."""
    others = np.sort(scores[~members])[::-1]
    return members & (scores > others[int(rate * len(others))])


def _rows(found: Mapping[tuple[str, float], list[float]]) -> Iterator[RecordPrecision]:
    for (name, rate), values in found.items():
        error = float(np.std(values, ddof=1) / np.sqrt(len(values)))
        yield RecordPrecision(name, rate, float(np.mean(values)), error, len(values))
