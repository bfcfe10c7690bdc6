"""What `covey guarantee` says before a run is played."""

from typing import NotRequired

from typing_extensions import TypedDict

from covey.dp.guarantee import Unit
from covey.unlearning.deniability_probability import DeniabilityRow

__all__ = ["Deniability", "GuaranteeOfNoise", "GuaranteeOfPaper"]


class GuaranteeOfPaper(TypedDict):
    """What Theorem 1 of the paper claims for a sigma, and what its algorithm delivers.

    Attributes:
        noise: `paper`.
        epsilon: that is delivered; None: no finite one.
        noise_multiplier: z of every release.
        relation: how two neighbouring sets of data differ.
        holds_if: what must be true, and what nothing enforces.
    """

    noise: str
    sigma: float
    rounds: int
    delta: float
    epsilon_claimed: float
    epsilon: float | None
    noise_multiplier: float
    relation: str
    covers: list[str]
    does_not_cover: list[str]
    holds_if: list[str]


class GuaranteeOfNoise(TypedDict):
    """What a mechanism guarantees, beside the size of its noise.

    Attributes:
        noise: `sound`, `client` or `record`.
        epsilon_claimed: that was asked for; None: the noise was given.
        epsilon: None: `reason` says why.
        unit: whom it protects.
        relation: how two neighbouring sets of data differ.
        adversary: who sees what.
        holds_if: what must be true, and what nothing enforces.
        accountant: what added up the cost.
        noise_multiplier: z of every release.
        views: epsilon by what an adversary sees, of anonymity sets.
        noise_norm: of each released model; not for `record`.
        update_norm: the largest of one update.
    """

    noise: str
    rounds: int
    epsilon_claimed: float | None
    epsilon: float | None
    reason: str
    delta: float
    unit: Unit
    relation: str
    adversary: str
    covers: list[str]
    does_not_cover: list[str]
    holds_if: list[str]
    accountant: str | None
    noise_multiplier: float | None
    views: NotRequired[dict[str, float | None]]
    noise_norm: NotRequired[float]
    update_norm: NotRequired[float]


class Deniability(TypedDict):
    """Which k and x keep forced replays rare.

    Attributes:
        clients: in every round.
        requests: to leave.
        target: the probability to stay below.
        holds_if: what must be true.
    """

    clients: int
    rounds: int
    requests: int
    target: float
    holds_if: list[str]
    settings: list[DeniabilityRow]
