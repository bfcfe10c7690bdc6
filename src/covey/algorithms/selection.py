"""Which cluster a client joins: by loss, by risk, by a threshold, at a price, or privately.

Choosing a cluster per client: IFCA, IFCA-MIR, and a threshold on the risk.

Every selection is a function `SelectionInputs -> cluster index per client`. A user's own
is one too: `package.module:function`.

References:
    McSherry, Talwar, Mechanism Design via Differential Privacy, 2007.
    Dwork, Roth, The Algorithmic Foundations of Differential Privacy, 2014, section 3.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from torch import Tensor

from covey.aggregation.base import ClientUpdate
from covey.algorithms.state import Cohort, RoundResult, ServerState
from covey.base.component_state import ComponentState
from covey.base.components import Component, OwnFunction, Share
from covey.base.events import ChoicesPerturbed, Event, PricesSet
from covey.base.figure import RiskEstimate
from covey.base.names import Handle
from covey.base.rng import Streams

UNASSIGNED = -1
"""The current cluster of a client that never chose one."""


@dataclass(frozen=True, slots=True, eq=False)
class SelectionInputs:
    """What the clients of a cohort know when they choose.

    Attributes:
        losses: mean loss in nats of each cluster's model on each client's own examples.
        risks: MIA accuracy of each cluster as each client has it, unclamped; NaN where
            there is no valid figure. Rows are equal unless clients judge for themselves.
        risk_errors: standard error of each risk.
        risk_weights: beta in [0, 1] of each client.
        risk_thresholds: tau of each client, the highest risk it accepts.
        available: clusters that may be chosen; one that no client trains is not.
        current: the cluster that each client chose last, or `UNASSIGNED`.
        absent_counts: per cluster, the clients outside this cohort that chose it last.
        prices: the subsidy of each cluster, in the units of the priced cost; 0 or more.
        streams: the round's named randomness, for selections that draw.
        client_streams: each client's own in the order of the rows, so that no client's draw
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
    equal risks) are ordered by the loss.

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
    return _lowest(inputs.losses, torch.where(nothing_known, inputs.available, admitted))


def _tied_within_error(inputs: SelectionInputs) -> Float[Tensor, "clients clusters"]:
    """Return the risks, those within 2 SE of the safest offered one set equal to it."""
    available = torch.where(inputs.available, inputs.risks, torch.nan).nan_to_num(2.0)
    safest = available.argmin(dim=1, keepdim=True)
    risk, error = (each.gather(1, safest) for each in (inputs.risks, inputs.risk_errors))
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


CostFunction = Callable[[SelectionInputs], Float[Tensor, "clients clusters"]]


def report_noisy_min(cost: CostFunction, bound: float, noise: float) -> Selection:
    """Return the selection of the lowest noisy cost among the offered clusters.

    j_i = argmin_j  c[i, j] - b B G[i, j],   c[i, j] = min(cost[i, j], B)

    With G standard Gumbel this is the exponential mechanism:

    P(j_i = j) = exp(-c[i, j] / (b B)) / sum_l exp(-c[i, l] / (b B))

    Let a client hold other examples: each of its costs stays in [0, B], so that each term
    exp(-c / (b B)) changes by a factor of at most exp(1 / b), the numerator once and the
    sum once. One choice is (2 / b)-differentially private, whatever its examples are.
    Between two clusters the true figure is 1 / b: what one term gains the other can lose,
    but not the numerator and its share of the sum.

    Args:
        cost: what a client would pay for each cluster, 0 or more; a diverged model's is
            the worst.
        bound: B, the same for everybody and known to all.
        noise: b, above 0.
    """

    def select(inputs: SelectionInputs) -> Tensor:
        costs = finite(cost(inputs).double()).clamp(0, bound)
        clusters = len(inputs.available)
        drawn = [one.draws().gumbel(size=(clusters,)) for one in inputs.client_streams]
        gumbel = torch.from_numpy(np.array(drawn).reshape(costs.shape))
        noisy = costs - noise * bound * gumbel
        return torch.where(inputs.available, noisy, torch.inf).argmin(dim=1)

    return select


def choice_epsilon(noise: float) -> float:
    """Return the epsilon of one choice by `report_noisy_min`."""
    return 2 / noise


STEP = 1.0
"""Of the dual ascent: cost units per round while a cluster lacks every client."""
LARGE_COST = 1e6
"""More than the costs of all clients together."""


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
    return violates + (1 - torch.exp(-finite(inputs.losses)))


def unconstrained_choice(inputs: SelectionInputs) -> Int[Tensor, " clients"]:
    """Return what each client wants at the posted prices.

    j_i = argmin_{j offered}  cost[i, j] - price_j
    """
    net = acceptance_cost(inputs) - inputs.prices
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
    cost = (acceptance_cost(inputs) - inputs.prices).double().numpy()
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
    has_price = inputs.prices.numpy() > 0
    limit = np.where(has_price, np.maximum(owed, present), len(current))
    rewards = (slots < owed[:, None]).astype(float)
    rewards += slots < np.minimum(owed, present)[:, None]
    return LARGE_COST * ((slots >= limit[:, None]) - rewards)


Losses = Float[Tensor, "clients clusters"]


class LatestLosses(ComponentState):
    """Each client's latest losses per cluster, in nats."""

    key = "latest-losses"
    losses: Mapping[Handle, tuple[float, ...]] = {}


class Prices(ComponentState):
    """The subsidy per cluster; empty before the first round with prices."""

    key = "prices"
    prices: tuple[float, ...] = ()


class ClusterSelection(Component):
    """How clients take their clusters; the fields of a subclass are its options.

    Attributes:
        weighs: whether it looks at the clients' weights on the risk (beta).
    """

    weighs: ClassVar[bool] = True

    @property
    def minimises(self) -> bool:
        """Whether it takes the lowest `cost`."""
        return type(self).cost is not ClusterSelection.cost

    def select(self, inputs: SelectionInputs) -> Int[Tensor, " clients"]:
        """Return an available cluster for every client."""
        raise NotImplementedError

    def cost(self, inputs: SelectionInputs) -> Float[Tensor, "clients clusters"] | None:
        """Return what `select` minimises, if it is the lowest cost; 0 or more."""
        del inputs

    def update_prices(self, state: ServerState, inputs: SelectionInputs) -> RoundResult:
        """Return what the server makes of a round's choices: the next state, and the events."""
        del inputs
        return RoundResult(state, ())


class OwnSelection(ClusterSelection, OwnFunction):
    """A user's function of `SelectionInputs`."""

    def select(self, inputs: SelectionInputs) -> Any:  # noqa: ANN401 - checked by who calls it
        """Return what the function says."""
        return self.call(inputs)


class ByLoss(ClusterSelection):
    """The lowest loss (IFCA)."""

    weighs: ClassVar[bool] = False

    def select(self, inputs: SelectionInputs) -> Int[Tensor, " clients"]:
        """Return the cluster with the lowest loss."""
        return select_by_loss(inputs)

    def cost(self, inputs: SelectionInputs) -> Float[Tensor, "clients clusters"]:
        """Return the losses."""
        return inputs.losses


class Weighted(ClusterSelection):
    """The best alpha * loss + beta * risk (IFCA-MIR)."""

    def select(self, inputs: SelectionInputs) -> Int[Tensor, " clients"]:
        """Return the cluster with the lowest cost."""
        return select_weighted(inputs)

    def cost(self, inputs: SelectionInputs) -> Float[Tensor, "clients clusters"]:
        """Return alpha * loss + beta * risk."""
        return weighted_cost(inputs)


class ByThreshold(ClusterSelection):
    """The lowest loss among clusters whose risk the client accepts, else the safest."""

    weighs: ClassVar[bool] = False

    def select(self, inputs: SelectionInputs) -> Int[Tensor, " clients"]:
        """Return the best acceptable cluster."""
        return select_by_threshold(inputs)


class Keeping(ClusterSelection):
    """A selection that keeps a share of the clients in every cluster.

    Attributes:
        target_share: share of the clients that every cluster keeps, above 0 and at most 1 /
            `num_clusters`: by a subsidy (`priced`), or at random (`rebalanced`, after choices
            by `threshold`; with `risk.name = "none"` these are by `loss`, and it is the
            paper's RR-Cluster, see `docs/guides/privacy.md`).
    """

    weighs: ClassVar[bool] = False

    target_share: Share = 0.0


class Priced(Keeping):
    """A subsidy per cluster, adapted by dual ascent (`select_priced`)."""

    def select(self, inputs: SelectionInputs) -> Int[Tensor, " clients"]:
        """Return what clients choose at the posted prices."""
        return select_priced(inputs, target_share=self.target_share)

    def update_prices(self, state: ServerState, inputs: SelectionInputs) -> RoundResult:
        """Adapt a subsidy per cluster after every round.

        price_j <- max(0, price_j + step (target_share - share_j)), see `dual_ascent`; a cluster
        that is not offered has no price.
        """
        if not len(inputs.losses):
            return RoundResult(state, ())
        wanted_shares = cluster_shares(inputs, unconstrained_choice(inputs)).tolist()
        rising = dual_ascent(inputs.prices.tolist(), wanted_shares, self.target_share)
        prices = tuple(
            price if is_offered else 0.0
            for price, is_offered in zip(rising, state.available(), strict=True)
        )
        fact = PricesSet(prices, tuple(wanted_shares), self.target_share)
        return RoundResult(state.keeping(Prices(prices=prices)), (fact,))


class Rebalanced(Keeping):
    """Choices by threshold, then moves at random (RR-Cluster, `rebalanced`)."""

    def select(self, inputs: SelectionInputs) -> Int[Tensor, " clients"]:
        """Return the choices after the moves."""
        return rebalanced(select_by_threshold, self.target_share)(inputs)


def with_latest_losses(state: ServerState, cohort: Cohort, losses: Losses) -> ServerState:
    """Return the state that remembers these losses; not those of a diverged model."""
    past = state.kept(LatestLosses).losses
    now = {c.handle: tuple(row) for c, row in zip(cohort, losses.tolist(), strict=True)}
    finite = {h: row for h, row in now.items() if all(map(math.isfinite, row))}
    others = {h: row for h, row in past.items() if h not in now}
    return state.keeping(LatestLosses(losses={**others, **finite}))


@dataclass(frozen=True, slots=True)
class SelectionConfig:
    """How clients come to choose.

    Attributes:
        select: how clients choose, from their inputs.
        update_prices: what the server makes of their choices.
        epsilon: of one choice, where it is differentially private.
    """

    select: Selection
    update_prices: Callable[[ServerState, SelectionInputs], RoundResult] = ByLoss().update_prices
    epsilon: float | None = None


BY_LOSS = SelectionConfig(select_by_loss)
"""IFCA: the lowest loss, and nothing else."""


class SelectionResult(NamedTuple):
    """What the clients chose, before anybody acts on it.

    Attributes:
        state: with the memory of this choice, and everybody still where it was.
        updates: where clients are remote, they train at once what they choose.
    """

    state: ServerState
    clusters: dict[Handle, int]
    events: tuple[Event, ...]
    updates: tuple[ClientUpdate, ...] | None = None


def choice_events(epsilon: float | None, cohort: Cohort) -> tuple[ChoicesPerturbed, ...]:
    """Return what is recorded of the noise in these clients' choices, if there is any."""
    if epsilon is None or not cohort:
        return ()
    return (ChoicesPerturbed(epsilon, tuple(client.handle for client in cohort)),)


def selection_inputs(
    state: ServerState, cohort: Cohort, losses: Losses, streams: Streams
) -> SelectionInputs:
    """Return what the clients of a cohort know when they choose."""
    known = [state.known_risks(client.handle) for client in cohort]

    def table(of: Callable[[RiskEstimate], float]) -> Float[Tensor, "clients clusters"]:
        rows = [[math.nan if k is None else of(k) for k in row] for row in known]
        return torch.tensor(rows, dtype=torch.float32).reshape(losses.shape)

    preferences = [client.preference for client in cohort]
    present = [client.handle for client in cohort]
    absent = Counter(j for h, j in state.assignment.items() if h not in set(present))
    num_clusters = len(state.clusters)
    return SelectionInputs(
        losses=losses,
        risks=table(lambda each: each.risk),
        risk_errors=table(lambda each: each.standard_error),
        risk_weights=torch.tensor([p.risk_weight for p in preferences]),
        risk_thresholds=torch.tensor([p.risk_threshold for p in preferences]),
        available=torch.tensor(state.available()),
        current=torch.tensor(
            [state.assignment.get(h, UNASSIGNED) for h in present], dtype=torch.int64
        ),
        absent_counts=torch.tensor([absent[j] for j in range(num_clusters)]),
        prices=torch.tensor(state.kept(Prices).prices or (0.0,) * num_clusters),
        streams=streams,
        client_streams=tuple(streams.at("choice", client.name) for client in cohort),
    )
