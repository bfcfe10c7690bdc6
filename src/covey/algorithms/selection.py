"""Which cluster a client joins: by loss (IFCA), by loss and risk (IFCA-MIR), by a threshold.

A user's own is a class with `select`, or a function `SelectionInputs -> cluster index per
client`: `package.module:function`.

References:
    McSherry, Talwar, Mechanism Design via Differential Privacy, 2007.
    Dwork, Roth, The Algorithmic Foundations of Differential Privacy, 2014, section 3.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from covey.aggregation.base import ClientUpdate
from covey.algorithms.state import Cohort, RoundResult, ServerState
from covey.base.built_ins import component
from covey.base.component_state import ComponentState, States, get_state
from covey.base.components import Component, NotNegative, OwnFunction
from covey.base.events import ChoicesPerturbed, Event
from covey.base.figure import RiskEstimate
from covey.base.names import Handle
from covey.base.rng import Streams

S = TypeVar("S", bound=ComponentState)

UNASSIGNED = -1
"""The current cluster of a client that never chose one."""

ComparesOn = tuple[Literal["train", "holdout", "batch"], int]
"""On which of its examples a client compares the models, and on how many; 0: all of them.
`batch`: on the mini-batch of the step that follows."""


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
        states: what selections keep from round to round, see `kept`.
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
    states: States
    streams: Streams
    client_streams: Collection[Streams] = ()

    def get_state(self, kind: type[S]) -> S:
        """Return what a selection keeps; its defaults, if that is nothing yet."""
        return get_state(self.states, kind)


Selection = Callable[[SelectionInputs], Int[Tensor, " clients"]]


def _with_ties(inputs: SelectionInputs, ties: float) -> Float[Tensor, "clients clusters"]:
    """Return the risks, those within so many standard errors of the safest set equal to it."""
    available = torch.where(inputs.available, inputs.risks, torch.nan).nan_to_num(2.0)
    safest = available.argmin(dim=1, keepdim=True)
    risk, error = (table.gather(1, safest) for table in (inputs.risks, inputs.risk_errors))
    spread = ties * (inputs.risk_errors**2 + error**2).sqrt()
    equal = (inputs.risks - risk).abs() < spread
    return torch.where(equal, risk, inputs.risks)


def _lowest(
    cost: Float[Tensor, "clients clusters"], admitted: Bool[Tensor, "... clusters"]
) -> Int[Tensor, " clients"]:
    return torch.where(admitted, replace_nonfinite(cost), torch.inf).argmin(dim=1)


def replace_nonfinite(losses: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
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
        costs = replace_nonfinite(cost(inputs).double()).clamp(0, bound)
        clusters = len(inputs.available)
        drawn = [one.draws().gumbel(size=(clusters,)) for one in inputs.client_streams]
        gumbel = torch.from_numpy(np.array(drawn).reshape(costs.shape))
        noisy = costs - noise * bound * gumbel
        return torch.where(inputs.available, noisy, torch.inf).argmin(dim=1)

    return select


def choice_epsilon(noise: float) -> float:
    """Return the epsilon of one choice by `report_noisy_min` with b = `noise`."""
    return 2 / noise


Losses = Float[Tensor, "clients clusters"]


def unchanged(state: ServerState, inputs: SelectionInputs) -> RoundResult:
    """Make nothing of a round's choices."""
    del inputs
    return RoundResult(state, ())


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

    @property
    def has_state(self) -> bool:
        """Whether it makes something of a round's choices, which decides later ones."""
        return type(self).after_choice is not ClusterSelection.after_choice

    def after_choice(self, state: ServerState, inputs: SelectionInputs) -> RoundResult:
        """Return what the server makes of a round's choices: the next state, and the events."""
        return unchanged(state, inputs)


class OwnSelection(ClusterSelection, OwnFunction):
    """A user's function of `SelectionInputs`."""

    def select(self, inputs: SelectionInputs) -> Any:  # noqa: ANN401 - checked by who calls it
        """Return what the function says."""
        return self.call(inputs)


@component("selection", "loss")
class ByLoss(ClusterSelection):
    """The lowest loss (IFCA).

    j_i = argmin_j loss[i, j]

    References:
        Ghosh et al., An Efficient Framework for Clustered Federated Learning, 2020.
    """

    weighs: ClassVar[bool] = False

    def select(self, inputs: SelectionInputs) -> Int[Tensor, " clients"]:
        """Return the offered cluster with the lowest loss."""
        return _lowest(inputs.losses, inputs.available)

    def cost(self, inputs: SelectionInputs) -> Float[Tensor, "clients clusters"]:
        """Return the losses."""
        return inputs.losses


@component("selection", "weighted", default=True)
class Weighted(ClusterSelection):
    """The best alpha * loss + beta * risk (IFCA-MIR).

    j_i = argmin_j  alpha_i loss[i, j] + beta_i risk[i, j],   alpha_i = 1 - beta_i

    Of equal costs the first cluster is taken. While an offered cluster has no figure, loss
    alone decides: an unknown risk can be compared with nothing.

    Attributes:
        ties: risks within so many standard errors of the safest count as equal to it, none
            is below 0.5, and equal costs go by the loss; 0: as the paper has it, on the figures
            as they are.

    References:
        Jung, Biswas, Palamidessi, IFCA-MIR, 2025, Algorithm 1 line 12.
    """

    ties: NotNegative = 0.0

    def select(self, inputs: SelectionInputs) -> Int[Tensor, " clients"]:
        """Return the offered cluster with the lowest cost."""
        cost = self.cost(inputs)
        if self.ties == 0:
            return _lowest(cost, inputs.available)
        best = torch.where(inputs.available, cost, torch.inf).amin(dim=1, keepdim=True)
        return _lowest(inputs.losses, inputs.available & (cost == best))

    def cost(self, inputs: SelectionInputs) -> Float[Tensor, "clients clusters"]:
        """Return alpha * loss + beta * risk."""
        unknown = (inputs.risks.isnan() & inputs.available).any(dim=1, keepdim=True)
        beta = inputs.risk_weights[:, None]
        losses, risks = replace_nonfinite(inputs.losses), _with_ties(inputs, self.ties)
        if self.ties > 0:
            risks = risks.clamp(0.5, 1)  # a risk below a coin toss is there by chance
        return torch.where(unknown, losses, (1 - beta) * losses + beta * risks)


@component("selection", "threshold")
class ByThreshold(ClusterSelection):
    """The lowest loss among clusters whose risk the client accepts, else the safest.

    A_i = {j offered: risk[i, j] <= tau_i};  j_i = argmin_{j in A_i} loss[i, j]

    An unknown risk is above every tau. Of equally safe clusters, the client takes the one
    with the lowest loss.

    Attributes:
        ties: clusters within so many standard errors of the lowest risk are equally safe.
    """

    weighs: ClassVar[bool] = False

    ties: NotNegative = 0.0

    def select(self, inputs: SelectionInputs) -> Int[Tensor, " clients"]:
        """Return the best acceptable cluster."""
        known = ~inputs.risks.isnan() & inputs.available
        accepted = known & (inputs.risks <= inputs.risk_thresholds[:, None])
        risks = torch.where(known, _with_ties(inputs, self.ties), torch.inf)
        safest = known & (risks == risks.amin(dim=1, keepdim=True))
        admitted = torch.where(accepted.any(dim=1, keepdim=True), accepted, safest)
        nothing_known = ~known.any(dim=1, keepdim=True)
        return _lowest(inputs.losses, torch.where(nothing_known, inputs.available, admitted))


@dataclass(frozen=True, slots=True)
class SelectionConfig:
    """How clients come to choose.

    Attributes:
        select: how clients choose, from their inputs.
        after_choice: what the server makes of their choices.
        epsilon: of one choice, where it is differentially private.
    """

    select: Selection
    after_choice: Callable[[ServerState, SelectionInputs], RoundResult] = unchanged
    epsilon: float | None = None


BY_LOSS = SelectionConfig(ByLoss().select)
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
        risks=table(lambda estimate: estimate.risk),
        risk_errors=table(lambda estimate: estimate.standard_error),
        risk_weights=torch.tensor([p.risk_weight for p in preferences]),
        risk_thresholds=torch.tensor([p.risk_threshold for p in preferences]),
        available=torch.tensor(state.available()),
        current=torch.tensor(
            [state.assignment.get(h, UNASSIGNED) for h in present], dtype=torch.int64
        ),
        absent_counts=torch.tensor([absent[j] for j in range(num_clusters)]),
        states=state.states,
        streams=streams,
        client_streams=tuple(streams.at("choice", client.name) for client in cohort),
    )
