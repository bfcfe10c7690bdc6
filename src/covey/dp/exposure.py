"""Exposure: how much of the clip a client's records, or its update, may use, and what that bounds.

Every round releases a sum with noise N(0, (z C)^2 I), to which client i, or each of its
records, adds C_i at most. After n rounds, whoever sees all of them and knows everything else
has mu-Gaussian differential privacy against it, and guesses right at most this often:

    mu_i = sqrt(n) (C_i / (z C) + rounding),    best balanced accuracy = Phi(mu_i / 2)

So for an accepted risk tau_i over T rounds, played R times at most,

    C_i / C = min(1, z (2 Phi^-1(tau_i) / sqrt(R T) - rounding)),    tau_i <= .5: 0

Rounding is 0 where the server adds the noise. Shares of it, which clients add under masks,
are whole numbers (`covey.secure_sums.noise`). Rounded Gaussian noise on whole numbers costs
no more than Gaussian noise, and their discrete noise, of standard deviation S = 2^16, is
within 3e-12 sqrt(d T) of it in total variation over d coordinates and T rounds.

References:
    Dong, Roth, Su, Gaussian Differential Privacy, 2022: Theorem 2.7, Corollary 3.3.
    Boenisch, Muehl, Dziedzic, Rinberg, Papernot, Have it your way: Individualized Privacy
    Assignment for DP-SGD, 2023, "scale".
    Jordon, Yoon, van der Schaar, Differentially Private Bagging, 2019, and Ebadi, Sands,
    Schneider, Differential Privacy: Now it's Getting Personal, 2015: budgets of one's own.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

from covey.base import events
from covey.base.history import of_kinds
from covey.base.names import Handle, Unit
from covey.dp.releases import aggregations_of, releases_in

STEPS = 2**20
"""An exposure is a multiple of 1 / STEPS below what is accepted, which no rounding exceeds."""

_NORMAL = NormalDist()


def exposure_within(
    accepted: float, rounds: int, noise_multiplier: float, rounding: float = 0.0
) -> float:
    """Return C_i / C: the largest with which no attacker is right more often than accepted.

    Args:
        accepted: tau_i, a balanced accuracy; 1 accepts everything.
        rounds: R T, in how many the client may be.
        noise_multiplier: z.
        rounding: what rounding adds to 1 / z in each of them.
    """
    if accepted <= 0.5:
        return 0.0
    if accepted >= 1:
        return 1.0
    mu = 2 * _NORMAL.inv_cdf(accepted)
    exposure = noise_multiplier * (mu / math.sqrt(rounds) - rounding)
    steps = math.floor(exposure * STEPS) - 1
    return min(STEPS, max(0, steps)) / STEPS


def success_of(mu: float) -> float:
    """Return Phi(mu / 2): how often the best attacker is right, of as many members as not."""
    return _NORMAL.cdf(mu / 2)


@dataclass(frozen=True, slots=True)
class IndividualBound:
    """What holds for one client, or for each of its records, after the rounds it was in.

    Attributes:
        unit: what hides: the client, or each of its records by itself.
        exposure: C_i / C, the largest of all rounds.
        rounds: in how many its data may be, those that were played again included.
        mu: of Gaussian differential privacy, over all of them.
    """

    unit: Unit
    exposure: float
    rounds: int
    mu: float

    @property
    def success(self) -> float:
        """The largest balanced accuracy of any attack."""
        return success_of(self.mu)


def individual_bounds(
    facts: Sequence[events.Event], unit: Unit
) -> Mapping[Handle, IndividualBound]:
    """Return the bound of each client that was in any round.

    Empty where choices or counts of losses were released under noise as well. A client whose
    cluster was aggregated without noise on a sum over this unit has mu = infinity.

    Args:
        facts: of all rounds ever played: what was released stays released.
        unit: of which the bounds are.
    """
    if any(release.mechanism in ("choice", "counts") for release in releases_in(facts)):
        return {}
    bounds: dict[Handle, IndividualBound] = {}
    for merge in aggregations_of(facts):
        for handle, added in added_in(merge, unit).items():
            known = bounds.get(handle, IndividualBound(unit, 0.0, 0, 0.0))
            exposure, mu = max(known.exposure, added.exposure), math.hypot(known.mu, added.mu)
            bounds[handle] = IndividualBound(unit, exposure, known.rounds + 1, mu)
    return bounds


class Added(NamedTuple):
    """How much a client, or a record, adds to a sum at most, beside the noise on it.

    Attributes:
        exposure: C_i / C.
        noise_multiplier: z; 0: there is no noise.
        rounding: what rounding adds to 1 / z.
    """

    exposure: float
    noise_multiplier: float
    rounding: float = 0.0

    @property
    def mu(self) -> float:
        """Of one release: C_i / (z C), and what rounding adds."""
        if not self.exposure:
            return 0.0
        z = self.noise_multiplier
        return self.exposure / z + self.rounding if z else math.inf


def added_in(merge: Sequence[events.Event], unit: Unit) -> Mapping[Handle, Added]:
    """Return who is in an aggregation, and what it adds to the sum of its cluster."""
    if not any(of_kinds(merge, events.ModelsMerged)):
        return {}  # after the last one nobody trains
    noise = dict[int, tuple[float, float]]()
    for release in releases_in(merge):
        if release.unit == unit and release.own is None and not release.sizes:
            z = 1 / (1 / release.multiplier - release.rounding)
            noise[release.cluster] = z, release.rounding
    waiting = {fact.cluster for fact in of_kinds(merge, events.ClusterWaited)}
    limited = dict[Handle, float]()
    for fact in of_kinds(merge, events.ExposuresLimited):
        limited |= fact.exposures
    return {
        handle: Added(limited.get(handle, 1.0), *noise.get(j, (0.0, 0.0)))
        for chosen in of_kinds(merge, events.ClientsAssigned)
        for handle, j in chosen.clusters.items()
        if j not in waiting
    }
