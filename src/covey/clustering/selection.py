"""Choosing a cluster per client: IFCA, IFCA-MIR, and a threshold on the risk.

Every selection is a function `Ballot -> cluster index per client`. A user's own is one
too: `package.module:function`.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from covey.rng import Streams

__all__ = [
    "NOWHERE",
    "Ballot",
    "Selection",
    "advantage",
    "finite",
    "select_by_loss",
    "select_by_threshold",
    "select_weighted",
    "weighted_cost",
]

NOWHERE = -1
"""The current cluster of a client that never chose one."""


@dataclass(frozen=True, slots=True, eq=False)
class Ballot:
    """What the clients of a cohort know when they choose.

    Attributes:
        losses: mean loss in nats of each cluster's model on each client's own examples.
        risks: MIA accuracy of each cluster as each client knows it, unclamped; NaN where
            there is no valid figure. Rows are equal unless clients judge for themselves.
        risk_errors: standard error of each risk.
        risk_weights: beta in [0, 1] of each client.
        risk_thresholds: tau of each client, the highest risk it accepts.
        offered: clusters that may be chosen; one that nobody trains is not offered.
        current: the cluster that each client chose last, or `NOWHERE`.
        settling: clients that moved too recently to move again (`stay_settled`).
        elsewhere: per cluster, the clients outside this cohort that chose it last.
        prices: the subsidy of each cluster, in the units of the priced cost; 0 or more.
        streams: the round's named randomness, for selections that draw.
        own: each client's own in the order of the rows, so that nobody's draw depends on
            who else is there.
    """

    losses: Float[Tensor, "clients clusters"]
    risks: Float[Tensor, "clients clusters"]
    risk_errors: Float[Tensor, "clients clusters"]
    risk_weights: Float[Tensor, " clients"]
    risk_thresholds: Float[Tensor, " clients"]
    offered: Bool[Tensor, " clusters"]
    current: Int[Tensor, " clients"]
    settling: Bool[Tensor, " clients"]
    elsewhere: Int[Tensor, " clusters"]
    prices: Float[Tensor, " clusters"]
    streams: Streams
    own: Collection[Streams] = ()


Selection = Callable[[Ballot], Int[Tensor, " clients"]]


def select_by_loss(ballot: Ballot) -> Int[Tensor, " clients"]:
    """Send every client to the offered cluster with the lowest loss (IFCA).

    j_i = argmin_j loss[i, j]

    References:
        Ghosh et al., An Efficient Framework for Clustered Federated Learning, 2020.
    """
    return _lowest(ballot.losses, ballot.offered)


def select_weighted(
    ballot: Ballot,
    scale: Callable[[Tensor], Tensor] = lambda risks: risks,
) -> Int[Tensor, " clients"]:
    """Send every client to the cluster that best balances loss and risk (IFCA-MIR).

    j_i = argmin_j  alpha_i loss[i, j] + beta_i risk[i, j],   alpha_i = 1 - beta_i

    Loss alone decides while an offered cluster has no figure: an unknown risk can be
    compared with nothing. Risks that differ from the safest by less than 2 SE count as
    equal to it, and only here are they clamped to [0.5, 1]. Equal costs (beta = 1 and
    equal risks) are told apart by the loss.

    Args:
        ballot: what the clients know.
        scale: what becomes of the risks before they are added to nats (`advantage`).

    References:
        Jung, Biswas, Palamidessi, IFCA-MIR, 2025, Algorithm 1 line 12.
    """
    cost = weighted_cost(ballot, scale)
    best = torch.where(ballot.offered, cost, torch.inf).amin(dim=1, keepdim=True)
    return _lowest(ballot.losses, ballot.offered & (cost == best))


def weighted_cost(
    ballot: Ballot,
    scale: Callable[[Tensor], Tensor] = lambda risks: risks,
) -> Float[Tensor, "clients clusters"]:
    """Return what `select_weighted` compares."""
    unknown = (ballot.risks.isnan() & ballot.offered).any(dim=1, keepdim=True)
    risks = _told_apart(ballot).clamp(0.5, 1)
    beta = ballot.risk_weights[:, None]
    losses = finite(ballot.losses)
    return torch.where(unknown, losses, (1 - beta) * losses + beta * scale(risks))


def select_by_threshold(ballot: Ballot) -> Int[Tensor, " clients"]:
    """Send every client to the lowest loss among the clusters that it accepts.

    A_i = {j offered: risk[i, j] <= tau_i};  j_i = argmin_{j in A_i} loss[i, j]

    An unknown risk is above every tau. A client that accepts nothing takes the safest
    cluster; among those within 2 SE of the safest, the one with the lowest loss.
    """
    known = ~ballot.risks.isnan() & ballot.offered
    accepted = known & (ballot.risks <= ballot.risk_thresholds[:, None])
    risks = torch.where(known, _told_apart(ballot), torch.inf)
    safest = known & (risks == risks.amin(dim=1, keepdim=True))
    admitted = torch.where(accepted.any(dim=1, keepdim=True), accepted, safest)
    in_the_dark = ~known.any(dim=1, keepdim=True)
    return _lowest(ballot.losses, torch.where(in_the_dark, ballot.offered, admitted))


def advantage(risks: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return `2 risk - 1`: 0 for a coin toss, 1 for certainty."""
    return 2 * risks - 1


def _told_apart(ballot: Ballot) -> Float[Tensor, "clients clusters"]:
    """Return the risks, those within 2 SE of the safest offered one set equal to it."""
    offered = torch.where(ballot.offered, ballot.risks, torch.nan).nan_to_num(2.0)
    safest = offered.argmin(dim=1, keepdim=True)
    risk, error = (
        each.gather(1, safest) for each in (ballot.risks, ballot.risk_errors)
    )
    spread = 2 * (ballot.risk_errors**2 + error**2).sqrt()
    equal = (ballot.risks - risk).abs() < spread
    return torch.where(equal, risk, ballot.risks)


def _lowest(
    cost: Float[Tensor, "clients clusters"], admitted: Bool[Tensor, "... clusters"]
) -> Int[Tensor, " clients"]:
    return torch.where(admitted, finite(cost), torch.inf).argmin(dim=1)


def finite(losses: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return the losses, those of a diverged model (NaN, infinite) as the very worst."""
    return losses.nan_to_num(nan=torch.finfo(losses.dtype).max)
