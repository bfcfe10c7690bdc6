"""Choosing a cluster per client: IFCA, IFCA-MIR, and a threshold on the risk.

Every selection is a function `SelectionInputs -> cluster index per client`. A user's own
is one too: `package.module:function`.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from covey.rng import Streams

__all__ = [
    "UNASSIGNED",
    "Selection",
    "SelectionInputs",
    "finite",
    "select_by_loss",
    "select_by_threshold",
    "select_weighted",
    "weighted_cost",
]

UNASSIGNED = -1
"""The current cluster of a client that never chose one."""


@dataclass(frozen=True, slots=True, eq=False)
class SelectionInputs:
    """What the clients of a cohort know when they choose.

    Attributes:
        losses: mean loss in nats of each cluster's model on each client's own examples.
        risks: MIA accuracy of each cluster as each client knows it, unclamped; NaN where
            there is no valid figure. Rows are equal unless clients judge for themselves.
        risk_errors: standard error of each risk.
        risk_weights: beta in [0, 1] of each client.
        risk_thresholds: tau of each client, the highest risk it accepts.
        available: clusters that may be chosen; one that nobody trains is not.
        current: the cluster that each client chose last, or `UNASSIGNED`.
        absent_counts: per cluster, the clients outside this cohort that chose it last.
        prices: the subsidy of each cluster, in the units of the priced cost; 0 or more.
        streams: the round's named randomness, for selections that draw.
        client_streams: each client's own in the order of the rows, so that nobody's draw
            depends on who else is there.
    """

    losses: Float[Tensor, "clients clusters"]
    risks: Float[Tensor, "clients clusters"]
    risk_errors: Float[Tensor, "clients clusters"]
    risk_weights: Float[Tensor, " clients"]
    risk_thresholds: Float[Tensor, " clients"]
    available: Bool[Tensor, " clusters"]
    current: Int[Tensor, " clients"]
    absent_counts: Int[Tensor, " clusters"]
    prices: Float[Tensor, " clusters"]
    streams: Streams
    client_streams: Collection[Streams] = ()


Selection = Callable[[SelectionInputs], Int[Tensor, " clients"]]


def select_by_loss(inputs: SelectionInputs) -> Int[Tensor, " clients"]:
    """Send every client to the offered cluster with the lowest loss (IFCA).

    j_i = argmin_j loss[i, j]

    References:
        Ghosh et al., An Efficient Framework for Clustered Federated Learning, 2020.
    """
    return _lowest(inputs.losses, inputs.available)


def select_weighted(inputs: SelectionInputs) -> Int[Tensor, " clients"]:
    """Send every client to the cluster that best balances loss and risk (IFCA-MIR).

    j_i = argmin_j  alpha_i loss[i, j] + beta_i risk[i, j],   alpha_i = 1 - beta_i

    Loss alone decides while an offered cluster has no figure: an unknown risk can be
    compared with nothing. Risks that differ from the safest by less than 2 SE count as
    equal to it, and only here are they clamped to [0.5, 1]. Equal costs (beta = 1 and
    equal risks) are told apart by the loss.

    References:
        Jung, Biswas, Palamidessi, IFCA-MIR, 2025, Algorithm 1 line 12.
    """
    cost = weighted_cost(inputs)
    best = torch.where(inputs.available, cost, torch.inf).amin(dim=1, keepdim=True)
    return _lowest(inputs.losses, inputs.available & (cost == best))


def weighted_cost(inputs: SelectionInputs) -> Float[Tensor, "clients clusters"]:
    """Return what `select_weighted` compares."""
    unknown = (inputs.risks.isnan() & inputs.available).any(dim=1, keepdim=True)
    risks = _tied_within_error(inputs).clamp(0.5, 1)
    beta = inputs.risk_weights[:, None]
    losses = finite(inputs.losses)
    return torch.where(unknown, losses, (1 - beta) * losses + beta * risks)


def select_by_threshold(inputs: SelectionInputs) -> Int[Tensor, " clients"]:
    """Send every client to the lowest loss among the clusters that it accepts.

    A_i = {j offered: risk[i, j] <= tau_i};  j_i = argmin_{j in A_i} loss[i, j]

    An unknown risk is above every tau. A client that accepts nothing takes the safest
    cluster; among those within 2 SE of the safest, the one with the lowest loss.
    """
    known = ~inputs.risks.isnan() & inputs.available
    accepted = known & (inputs.risks <= inputs.risk_thresholds[:, None])
    risks = torch.where(known, _tied_within_error(inputs), torch.inf)
    safest = known & (risks == risks.amin(dim=1, keepdim=True))
    admitted = torch.where(accepted.any(dim=1, keepdim=True), accepted, safest)
    nothing_known = ~known.any(dim=1, keepdim=True)
    return _lowest(
        inputs.losses, torch.where(nothing_known, inputs.available, admitted)
    )


def _tied_within_error(inputs: SelectionInputs) -> Float[Tensor, "clients clusters"]:
    """Return the risks, those within 2 SE of the safest offered one set equal to it."""
    available = torch.where(inputs.available, inputs.risks, torch.nan).nan_to_num(2.0)
    safest = available.argmin(dim=1, keepdim=True)
    risk, error = (
        each.gather(1, safest) for each in (inputs.risks, inputs.risk_errors)
    )
    spread = 2 * (inputs.risk_errors**2 + error**2).sqrt()
    equal = (inputs.risks - risk).abs() < spread
    return torch.where(equal, risk, inputs.risks)


def _lowest(
    cost: Float[Tensor, "clients clusters"], admitted: Bool[Tensor, "... clusters"]
) -> Int[Tensor, " clients"]:
    return torch.where(admitted, finite(cost), torch.inf).argmin(dim=1)


def finite(losses: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return the losses, those of a diverged model (NaN, infinite) as the very worst."""
    return losses.nan_to_num(nan=torch.finfo(losses.dtype).max)
