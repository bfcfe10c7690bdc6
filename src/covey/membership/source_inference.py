"""Source inference: which cluster does a record come from?

References:
    Hu, Salcic, Sun, Dobbie, Zhang, Source Inference Attacks in Federated Learning, 2021.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

__all__ = ["Attribution", "attribution", "source_of"]


@dataclass(frozen=True, slots=True)
class Attribution:
    """How often the guessed source is the true one.

    Attributes:
        standard_error: of `accuracy`, which is moved half a record inwards for it.
        prior_accuracy: of always guessing the source that holds most of the records.
    """

    accuracy: float
    standard_error: float
    prior_accuracy: float
    records: int


def source_of(
    losses: Float[ndarray, "sources records"],
) -> Int[ndarray, " records"]:
    """Return argmin_j loss(theta_j, x): whose model knows the record best."""
    return losses.argmin(axis=0)


def attribution(
    guessed: Int[ndarray, " records"], truth: Int[ndarray, " records"]
) -> Attribution:
    """Compare guesses with the truth; SE^2 = accuracy (1 - accuracy) / n."""
    n = len(truth)
    accuracy = float(np.mean(guessed == truth))
    inner = np.clip(accuracy, 0.5 / n, 1 - 0.5 / n)
    return Attribution(
        accuracy=accuracy,
        standard_error=float(np.sqrt(inner * (1 - inner) / n)),
        prior_accuracy=float(np.bincount(truth).max() / n),
        records=n,
    )
