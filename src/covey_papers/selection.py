"""Selections that keep a share of the clients in every cluster: at a price, or at random.

Prices are adapted by dual ascent on congestion prices; at random is RR-Cluster.
"""

import math
from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from covey import (
    ByThreshold,
    ClusterSelection,
    ComponentState,
    Config,
    RoundResult,
    SelectionInputs,
    ServerState,
)
from covey.algorithms.selection import UNASSIGNED, Selection, replace_nonfinite
from covey.base.components import Share
from covey.base.events import PricesSet
from covey.settings.rules import Clash, SettingsConflict

STEP = 1.0
"""Of the dual ascent: cost units per round while a cluster lacks every client."""
LARGE_COST = 1e6
"""More than the costs of all clients together."""


class Prices(ComponentState):
    """The subsidy per cluster; empty before the first round with prices."""

    key = "prices"
    prices: tuple[float, ...] = ()


def posted_prices(inputs: SelectionInputs) -> Float[Tensor, " clusters"]:
    """Return the subsidy of each cluster, in the units of `acceptance_cost`; 0 or more."""
    return torch.tensor(inputs.get_state(Prices).prices or (0.0,) * len(inputs.available))


def acceptance_cost(inputs: SelectionInputs) -> Float[Tensor, "clients clusters"]:
    """Return what a cluster costs a client, in violations.

    cost[i, j] = [risk[i, j] > tau_i] + (1 - exp(-loss[i, j]))

    The first term is 1 for a risk above what the client accepts; an unknown risk is
    above every tau. The second is one minus the typical (geometric mean) probability
    that the model gives to the right label: in [0, 1), 0 for a perfect model. So a
    violation outweighs any loss, and between two clusters that a client both accepts,
    or both does not, its loss decides.

    The risk's excess over tau is left out on purpose. With it the most tolerant clients
    would fill a cluster whose risk is above everybody's tau: each of them a new
    violation, where a client that accepts no cluster at all adds none.
    """
    violates = ~(inputs.risks <= inputs.risk_thresholds[:, None])
    return violates + (1 - torch.exp(-replace_nonfinite(inputs.losses)))


def unconstrained_choice(inputs: SelectionInputs) -> Int[Tensor, " clients"]:
    """Return what each client wants at the posted prices.

    j_i = argmin_{j offered}  cost[i, j] - price_j
    """
    net = acceptance_cost(inputs) - posted_prices(inputs)
    return torch.where(inputs.available, net, torch.inf).argmin(dim=1)


def select_priced(inputs: SelectionInputs, target_share: float) -> Int[Tensor, " clients"]:
    """Let clients choose at the posted prices, a cluster's last clients one for one.

    The choices approach the solution of

        minimise   sum_i cost[i, j_i]
        such that  |{i: j_i = j}| >= m = ceil(target_share n)  for every cluster j

    in which price_j >= 0 is the multiplier of cluster j's constraint (`dual_ascent`). At
    prices that are not there yet the choices break the constraint, so of the moves that
    clients want those with the largest total gain are made for which

    - no cluster falls below m: the client that gains least by leaving stays, until another comes;
    - no cluster with a price grows beyond m: a subsidy buys the target and no more.

    No client is sent where it does not want to go. The clients that come first are those
    that accept the cluster anyway (a high tau), at a price that makes up for their
    loss; then those that accept no cluster, whose violation is the same everywhere, but
    not their exposure; a client that accepts only the other one comes at a price
    of 1 or more.

    References:
        Kelly, Maulloo, Tan, Rate Control for Communication Networks: Shadow Prices,
        Proportional Fairness and Stability, 1998 (dual ascent on congestion prices).
        Bertsekas, The Auction Algorithm, 1988 (assignment by prices).
    """
    from scipy.optimize import linear_sum_assignment

    wanted = unconstrained_choice(inputs)
    somewhere = inputs.current != UNASSIGNED
    can_stay = somewhere & inputs.available[inputs.current.clamp(min=0)]
    current = torch.where(can_stay, inputs.current, wanted)
    slot_costs = _slot_costs(inputs, current, min_clients(inputs, target_share))
    slots = slot_costs.shape[1]
    cost = (acceptance_cost(inputs) - posted_prices(inputs)).double().numpy()
    clients = np.arange(len(wanted))
    slot_prices = np.full((*cost.shape, slots), np.inf)
    for choice in (current, wanted):
        slot_prices[clients, choice] = cost[clients, choice, None] + slot_costs[choice]
    _, columns = linear_sum_assignment(slot_prices.reshape(len(wanted), cost.shape[1] * slots))
    return torch.from_numpy(columns // max(1, slots))


def cluster_shares(
    inputs: SelectionInputs, chosen: Int[Tensor, " clients"]
) -> Float[ndarray, " clusters"]:
    """Return which share of all clients each cluster has after these choices."""
    sizes = _sizes(inputs, chosen)
    return sizes / max(1, sizes.sum())


def dual_ascent(
    prices: Sequence[float], wanted_shares: Sequence[float], target_share: float
) -> tuple[float, ...]:
    """Return the prices after one step of dual ascent.

    price_j <- max(0, price_j + step (target_share - share_j))

    share_j is the share of the clients that want cluster j at the posted price. What
    they want is the gradient, and not where they are: those that are kept back would
    hide from the price that no client wants to stay.
    """
    return tuple(
        max(0.0, price + STEP * (target_share - share))
        for price, share in zip(prices, wanted_shares, strict=True)
    )


def rebalanced(select: Selection, target_share: float) -> Selection:
    """Move clients at random until every cluster has its floor (RR-Cluster).

    After the clients' choices j_i: while some |S_j| < m = ceil(target_share n), a client
    drawn uniformly from the clusters with more than m moves to j, whether it accepts
    j's risk or not.

    It hides no choice: who is moved depends on what everybody chose. Under noise on sums a
    cluster's noise is divided by m or more, and its mean is bent by those who were moved.

    References:
        Yang, Hu, Kim, Li, Differentially Private Federated Clustering with Random
        Rebalancing (RR-Cluster), arXiv 2508.06183, 2025. There m lowers the noise of each
        cluster's mean; here it is the rival of `select_priced`, too.
    """

    def balance(inputs: SelectionInputs) -> Int[Tensor, " clients"]:
        chosen = select(inputs).clone()
        floor = min_clients(inputs, target_share)
        draw = inputs.streams.at("rebalancing").generator()
        for j in inputs.available.nonzero().flatten().tolist():
            sizes = _sizes(inputs, chosen)
            while sizes[j] < floor:
                larger = (sizes[chosen.numpy()] > floor).nonzero()[0]
                if not len(larger):
                    break
                chosen[draw.choice(larger)] = j
                sizes = _sizes(inputs, chosen)
        return chosen

    return balance


def min_clients(inputs: SelectionInputs, target_share: float) -> int:
    """Return m = ceil(target_share n), or what n clients can give every cluster."""
    total = len(inputs.losses) + int(inputs.absent_counts.sum())
    wanted = math.ceil(target_share * total - 1e-9)  # 0.07 * 100 is above 7
    return min(wanted, total // int(inputs.available.sum()))


def _sizes(inputs: SelectionInputs, chosen: Int[Tensor, " clients"]) -> Int[ndarray, " clusters"]:
    present = np.bincount(chosen.numpy(), minlength=len(inputs.available))
    return present + inputs.absent_counts.numpy()


def _slot_costs(
    inputs: SelectionInputs, current: Int[Tensor, " clients"], floor: int
) -> Float[ndarray, "clusters slots"]:
    """Return the surcharge of each cluster's first, second, ... client of this cohort.

    Rewarded up to the floor, twice where somebody is already there, so that no cluster
    is emptied to fill another; free after it; punished where a price buys no more.
    """
    slots = np.arange(len(current))
    owed = np.maximum(0, floor - inputs.absent_counts.numpy())
    present = np.bincount(current.numpy(), minlength=len(owed))
    has_price = posted_prices(inputs).numpy() > 0
    limit = np.where(has_price, np.maximum(owed, present), len(current))
    rewards = (slots < owed[:, None]).astype(float)
    rewards += slots < np.minimum(owed, present)[:, None]
    return LARGE_COST * ((slots >= limit[:, None]) - rewards)


class MinimumShare(ClusterSelection):
    """A selection that keeps a share of the clients in every cluster.

    Attributes:
        target_share: share of the clients that every cluster keeps, above 0 and at most 1 /
            `num_clusters`: by a subsidy (`priced`), or at random (`rebalanced`, after choices
            by `threshold`; with `risk.name = "none"` these are by `loss`, and it is the
            paper's RR-Cluster, see `docs/guides/privacy.md`).
    """

    weighs: ClassVar[bool] = False

    target_share: Share = 0.0

    def conflicts(self, settings: Config) -> Iterator[SettingsConflict | Clash]:
        """Refuse a share that does not fit, and clients whose losses the server does not see."""
        method, key, share = settings.method, "method.selection", self.target_share
        most, newcomers = 1 / (method.num_models or 1), getattr(method, "max_newcomers", 0.0)
        if share > most:
            yield SettingsConflict(
                (key,),
                f"{key}.target_share is what each of method.num_clusters = "
                f"{method.num_models} clusters keeps, so at most {most:.3g}, found {share:g}. "
                f"Lower it.",
            )
        elif share == 0:
            yield SettingsConflict(
                (key,),
                f"{key} = {self.name!r} keeps target_share of the clients in every "
                f"cluster, found 0. Set it, for example to {most / 2:.3g}: {key} = "
                f'{{name = "{self.name}", target_share = {most / 2:.3g}}}.',
            )
        elif newcomers > 0:
            yield SettingsConflict(
                (key, "method.max_newcomers"),
                f"{key}.target_share moves clients into small clusters, and method.max_newcomers "
                f"bounds who enters them, found {share:g} and {newcomers:g}. Set one of "
                f"the two to 0.",
            )
        needs, remedy = "to know what every client measured", "Choose another selection."
        remote, masked = settings.engine.is_remote, settings.privacy_plan.masks is not None
        other = "engine.name" if remote else "privacy.secure_sums"
        yield Clash(remote or masked, key, needs, other, remedy)


class Priced(MinimumShare):
    """A subsidy per cluster, adapted by dual ascent (`select_priced`)."""

    def select(self, inputs: SelectionInputs) -> Int[Tensor, " clients"]:
        """Return what clients choose at the posted prices."""
        return select_priced(inputs, target_share=self.target_share)

    def after_choice(self, state: ServerState, inputs: SelectionInputs) -> RoundResult:
        """Adapt a subsidy per cluster after every round.

        price_j <- max(0, price_j + step (target_share - share_j)), see `dual_ascent`; a cluster
        that is not offered has no price.
        """
        if not len(inputs.losses):
            return RoundResult(state, ())
        wanted_shares = cluster_shares(inputs, unconstrained_choice(inputs)).tolist()
        rising = dual_ascent(posted_prices(inputs).tolist(), wanted_shares, self.target_share)
        prices = tuple(
            price if is_offered else 0.0
            for price, is_offered in zip(rising, state.available(), strict=True)
        )
        fact = PricesSet(prices, tuple(wanted_shares), self.target_share)
        return RoundResult(state.with_state(Prices(prices=prices)), (fact,))


class Rebalanced(MinimumShare):
    """Choices by threshold, then moves at random (RR-Cluster, `rebalanced`)."""

    def select(self, inputs: SelectionInputs) -> Int[Tensor, " clients"]:
        """Return the choices after the moves."""
        return rebalanced(ByThreshold().select, self.target_share)(inputs)
