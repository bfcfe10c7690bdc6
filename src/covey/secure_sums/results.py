"""What a round of secure sums ends in."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64

from covey.secure_sums.terms import Reason, Step

__all__ = ["Refusal", "SecureSum"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """A message, or a share in one, that did not count."""

    sender: str
    step: Step
    reason: Reason


@dataclass(frozen=True, slots=True, eq=False)
class SecureSum:
    """What comes of a round.

    Attributes:
        values: the sum, mod 2^64.
        clients: whose numbers it is over, in the order of their names.
    """

    values: Int64[np.ndarray, " numbers"]
    clients: tuple[str, ...]
