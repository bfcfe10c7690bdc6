"""What an attack sees of some records: what models say of them, and nothing else.

Every attack here is a function of arrays that returns a score per record; higher is more
member-like.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from covey.errors import ConfigError

__all__ = ["Signals", "check_references", "log_complement", "logit", "of_label"]


@dataclass(frozen=True, slots=True, eq=False)
class Signals:
    """What the model under attack, and reference models, say of the same records.

    All attacks look at the same arrays, and none can write into them.

    Attributes:
        labels: each record's class.
        target: log-probabilities of the classes, in nats, under the attacked model.
        references: the same under every reference model.
        inside: whether a reference was trained on a record; in the audit of a run each
            record is inside at least one and outside at least one.
    """

    labels: Int[ndarray, " records"]
    target: Float[ndarray, "records classes"]
    references: Float[ndarray, "records models classes"]
    inside: Bool[ndarray, "records models"]

    def __post_init__(self) -> None:
        for each in fields(self):
            seen = getattr(self, each.name).view()
            seen.flags.writeable = False
            object.__setattr__(self, each.name, seen)


def of_label(
    log_probs: Float[ndarray, "records *models classes"],
    labels: Int[ndarray, " records"],
) -> Float[ndarray, "records *models"]:
    """Return log p_y: minus the loss."""
    places = labels.reshape(-1, *[1] * (log_probs.ndim - 1))
    return np.take_along_axis(log_probs, places, axis=-1)[..., 0]


def log_complement(
    log_probs: Float[ndarray, "records *models classes"],
) -> Float[ndarray, "records *models classes"]:
    """Return log(1 - p_c) as the sum of the other classes' probabilities.

    1 - exp(log p_c) would be 0 for every confident model.
    """
    from scipy.special import logsumexp

    others = [
        np.asarray(logsumexp(np.delete(log_probs, c, axis=-1), axis=-1))
        for c in range(log_probs.shape[-1])
    ]
    return np.stack(others, axis=-1)


def logit(
    log_probs: Float[ndarray, "records *models classes"],
    labels: Int[ndarray, " records"],
) -> Float[ndarray, "records *models"]:
    """Return the logit-scaled confidence phi = log(p_y / (1 - p_y)).

    Close to normally distributed over models that differ in their data, which p_y and
    the loss are not (Carlini et al., 2022, section IV-C).
    """
    return of_label(log_probs, labels) - of_label(log_complement(log_probs), labels)


def check_references(
    inside: Bool[ndarray, "records models"],
    least: int = 1,
    sides: Sequence[str] = ("inside", "outside"),
) -> None:
    """Refuse records that too few references hold, or too few do not.

    Args:
        inside: which reference was trained on which record.
        least: references on each side.
        sides: where they are needed.

    Raises:
        ConfigError: some record is inside, or outside, fewer than `least` of them.
    """
    counts = {"inside": inside.sum(axis=1), "outside": (~inside).sum(axis=1)}
    for side in sides:
        fewest = int(counts[side].min(initial=least))
        if fewest < least:
            raise ConfigError(
                f"This attack needs every record {side} at least {least} reference "
                f"models, found one that is {side} {fewest}. Use more references."
            )
