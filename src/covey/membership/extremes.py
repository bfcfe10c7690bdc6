"""What a mean over members hides: those who are told surely, and the worst client."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from covey.membership.attacks import best_threshold
from covey.membership.estimates import MIN_RECORDS

__all__ = ["Extremes", "extremes_of"]

ACCUSED = 0.01


class Extremes(NamedTuple):
    """What stands beside the mean success of an attack.

    Attributes:
        tpr_at_1: share of members found while 1% of non-members are accused.
        worst_client: the largest balanced accuracy on one client's members, at the
            threshold that is best for all; of few records it is large by chance alone.
    """

    tpr_at_1: float
    worst_client: float


def extremes_of(
    inside: Sequence[Float[ndarray, " _"]], outside: Float[ndarray, " _"]
) -> Extremes | None:
    """Return both, from the scores of each client's members and of all non-members.

    None where there are too few of either.
    """
    own = [each for each in inside if len(each) >= MIN_RECORDS]
    if not own or len(outside) < MIN_RECORDS:
        return None
    together = np.concatenate(own)
    accepted = np.quantile(outside, 1 - ACCUSED, method="inverted_cdf")
    found = float((together > accepted).mean())
    threshold = best_threshold(together, outside)
    accused = float((outside >= threshold).mean())
    worst = max(float((each >= threshold).mean()) for each in own)
    return Extremes(found, (worst + 1 - accused) / 2)
