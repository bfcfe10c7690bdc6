"""Partial pooling: cluster models that lean on what safer clusters have learned.

A small cluster's own model is accurate for its clients and remembers them; the model of
everybody remembers hardly anybody, and may fail them. Between the two lie models of which
a part is shared. After every round, layer by layer:

    theta_j <- (1 - lambda_j) theta_j + lambda_j theta_all
    theta_all = sum_j w_j theta_j / sum_j w_j,    w_j = n_j (1 - lambda_j)

n_j is the number of examples that cluster j trains on. A cluster gives to the shared model
as much as it keeps of its own: what it loses because it remembers too much must not
come back through the mean. Where every cluster gives a layer up, w_j = n_j.

References:
    Mansour et al., Three Approaches for Personalization with Applications to Federated
    Learning, 2020, and Deng et al., Adaptive Personalized Federated Learning (APFL),
    2020: interpolation between an own and a shared model.
    Liang et al., Think Locally, Act Globally: Federated Learning with Local and Global
    Representations (LG-FedAvg), 2020: own first layers and a shared head.
    Zhang et al., LCFed: An Efficient Clustered Federated Learning Framework for
    Heterogeneous Data, 2025: cluster models with a common part, the embedding, under
    heads of their own; the other way round from LG-FedAvg, and from here.
    Li et al., Ditto: Fair and Robust Federated Learning Through Personalization, 2021:
    an own model held near the shared one by a penalty.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from pydantic import Field

from covey import (
    Clients,
    ComponentState,
    Config,
    Params,
    RoundResult,
    ServerState,
    Setup,
    Streams,
    Traits,
)
from covey.algorithms.ifca import Ifca, IfcaMir
from covey.algorithms.selection import Losses, SelectionInputs, SelectionResult
from covey.algorithms.state import Cohort
from covey.base.events import ModelsPooled
from covey.base.names import Handle
from covey.base.params import model_hash
from covey.data.examples import Client
from covey.settings.rules import Clash

MAX_REFUSED_SHARE = 0.25
"""Share of a cluster's clients above which it is protected more."""

MAX_EXAMPLE_SHARE = 0.9
"""Share of all examples above which a cluster is not helped by the others'."""


class LatestLosses(ComponentState):
    """Each client's latest losses per cluster, in nats."""

    key = "latest-losses"
    losses: Mapping[Handle, tuple[float, ...]] = {}


class PoolingShares(ComponentState):
    """Per cluster, the share by which its model was last pooled."""

    key = "pooling"
    shares: tuple[float, ...] = ()


START = STEP = 1 / 3


class PooledIfca(Ifca):
    """IFCA, after whose rounds the clusters' models have their last layers in common.

    Attributes:
        pooling: share of the model that clusters have in common after every round, the last
            layers first: 1 is FedAvg; `risk`: per cluster, a third (the head) and more
            while its clients refuse its measured risk; nothing for a cluster that holds
            over 9 in 10 examples.
    """

    # all clients' numbers of examples weigh the shared model
    traits: ClassVar[Traits] = Traits(reads_population=True)

    pooling: Literal["risk"] | Annotated[float, Field(gt=0, le=1)] = "risk"

    def round(self, state: ServerState, clients: Clients, streams: Streams) -> RoundResult:
        """Play a round of IFCA, and pull every model towards the shared one."""
        played = super().round(state, clients, streams)
        shares = shares_of(self.pooling, state, played.state, clients.setup)
        return pooled(played, shares, clients, streams)

    def choose(self, state: ServerState, clients: Clients, streams: Streams) -> SelectionResult:
        """Let clients choose, and remember the losses that they measured."""

        def after_choice(before: ServerState, inputs: SelectionInputs) -> RoundResult:
            after = clients.selection.after_choice(before, inputs)
            known = with_latest_losses(after.state, clients.cohort, inputs.losses)
            return after._replace(state=known)

        remembering = replace(clients.selection, after_choice=after_choice)
        return super().choose(state, replace(clients, selection=remembering), streams)

    def conflicts(self, settings: Config) -> Iterator[Clash]:
        """Refuse noise that does not hide how many examples a client holds."""
        key, remedy = "method.name", "Use privacy.record_noise, or a method that pools nothing."
        plan, sizes = settings.privacy_plan, "to know how many examples clients hold"
        noise = plan.noise > 0 and not plan.sums_gradients
        yield Clash(noise, key, sizes, "privacy.client_noise", remedy)
        is_sound = getattr(settings.aggregation, "noise", "") == "sound"
        yield Clash(is_sound, key, sizes, "aggregation.noise", remedy)
        if self.pooling == "risk":
            key, remedy = "method.pooling", "Set a share."
            yield Clash(not settings.risk.measures, key, "a measured risk", "risk.name", remedy)
            numbers = settings.model.task == "regression"
            yield Clash(numbers, key, "a loss with a known bound", "model.task", remedy)


class PooledIfcaMir(PooledIfca, IfcaMir):
    """IFCA-MIR, after whose rounds the clusters' models have their last layers in common."""


def pooled(
    played: RoundResult, shares: tuple[float, ...], clients: Clients, streams: Streams
) -> RoundResult:
    """Pull every cluster model towards the shared one after a round.

    A cluster that no client chooses neither moves nor gives. Rounds in which no client has a
    cluster yet have one model, and nothing to pull; in a round without clients nothing
    moves.

    Args:
        played: what came of the round.
        shares: of each cluster's model, how much it has in common with all; 1 is FedAvg.
        clients: of the round.
        streams: of the round.
    """
    after = played.state
    if not len(clients) or not after.assignment:
        return played
    layers = _layers_of(clients.setup.draw_model(streams))  # in the module's order
    sizes = _sizes(after, {client.handle: client for client in clients.setup.population})
    shares = tuple(share if n else 0.0 for share, n in zip(shares, sizes, strict=True))
    pulls = np.array([head_first(share, len(layers)) for share in shares])
    models = _pulled(after.clusters, sizes, pulls, layers)
    fact = ModelsPooled(shares, model_hash(models))
    after = replace(after, clusters=models).with_state(PoolingShares(shares=shares))
    return played._replace(state=after, events=(*played.events, fact))


def _layers_of(params: Params) -> tuple[tuple[str, ...], ...]:
    """Return the names of a fresh model's parameters, layer by layer, input to output.

    A layer is one module with parameters of its own; modules register in forward order.
    """
    layers: dict[str, list[str]] = {}
    for name in params:
        layers.setdefault(name.rpartition(".")[0], []).append(name)
    return tuple(tuple(names) for names in layers.values())


def head_first(share: float, num_layers: int) -> Float[ndarray, " layers"]:
    """Share the last layers first: lambda_l = clip(p L - (L - l), 0, 1), l = 1..L.

    Output layers hold most of a network's parameters, and so of its memory, while a shift
    of the inputs is met by the first layers: on dark or inverted images, sharing the head
    alone costs a small cluster nothing and takes away most of its risk.
    """
    behind = np.arange(num_layers)[::-1]
    return np.clip(share * num_layers - behind, 0.0, 1.0)


def shares_of(
    pooling: Literal["risk"] | float, before: ServerState, after: ServerState, setup: Setup
) -> tuple[float, ...]:
    """Return how much of each cluster's model is shared after a round."""
    if pooling != "risk":
        return (pooling,) * len(after.clusters)
    seen = replace(before, assignment=after.assignment, states=after.states)
    clients = {client.handle: client for client in setup.population}
    return share_by_risk(seen, clients, setup.chance_loss)


def share_by_risk(
    state: ServerState, clients: Mapping[Handle, Client], chance_loss: float
) -> tuple[float, ...]:
    """Return per cluster a share that rises while too many of its clients refuse its risk.

    At every new figure each client answers whether it refuses the risk; the server sees
    counts:

        refused_j = share of the clients i of cluster j with tau_i < risk_ij
        lambda_j <- lambda_j + STEP    if refused_j > TOO_MANY

    from START up to 1, and never down: what was refused at a share would come back with
    it. A risk that a client does not know it refuses. The risk is the cluster's, or what
    each client found by itself: then its answer, one bit, is all that it sends.

    Two things pooling cannot do. A cluster that holds over MOST of all examples keeps its
    model: pulled towards everybody's, it would be pulled towards itself. And beyond START
    a share rises only if another cluster's model has a lower loss on its clients'
    examples than guessing has: else there is nothing more to share.

    Args:
        state: before the round, with the choices made and losses reported in it.
        clients: all of them, by handle.
        chance_loss: the loss of equal probabilities for all classes, ln C, in nats.
    """
    sizes = _sizes(state, clients)
    before = state.get_state(PoolingShares).shares or (0.0,) * len(state.clusters)

    def raised(j: int) -> float:
        members = [handle for handle, chosen in state.assignment.items() if chosen == j]
        if _refused(state, j, members, clients) <= MAX_REFUSED_SHARE:
            return 0.0
        if _lowest_loss_elsewhere(state, j, members) >= chance_loss:
            return START
        return min(1.0, before[j] + STEP)

    return tuple(
        0.0 if sizes[j] > MAX_EXAMPLE_SHARE * sizes.sum() else max(START, share, raised(j))
        for j, share in enumerate(before)
    )


def _refused(
    state: ServerState, j: int, members: Sequence[Handle], clients: Mapping[Handle, Client]
) -> float:
    """Return which share of these clients refuses the risk; 0 without a new figure."""
    known = [state.known_risks(handle)[j] for handle in members]
    if not any(k is not None and k.round_index == state.round_index for k in known):
        return 0.0
    taus = [clients[handle].preference.risk_threshold for handle in members]
    refuses = [k is None or tau < k.risk for k, tau in zip(known, taus, strict=True)]
    return float(np.mean(refuses))


def _lowest_loss_elsewhere(state: ServerState, j: int, members: Sequence[Handle]) -> float:
    """Return the lowest mean loss that another cluster's model has on their examples."""
    losses = state.get_state(LatestLosses).losses
    rows = [losses[handle] for handle in members if handle in losses]
    if not rows:
        return math.inf
    others = np.arange(len(state.clusters)) != j
    return float(np.mean(rows, axis=0)[others].min(initial=math.inf))


def with_latest_losses(state: ServerState, cohort: Cohort, losses: Losses) -> ServerState:
    """Return the state that remembers these losses; not those of a diverged model."""
    past = state.get_state(LatestLosses).losses
    now = {c.handle: tuple(row) for c, row in zip(cohort, losses.tolist(), strict=True)}
    valid = {h: row for h, row in now.items() if all(map(math.isfinite, row))}
    others = {h: row for h, row in past.items() if h not in now}
    return state.with_state(LatestLosses(losses={**others, **valid}))


def _sizes(state: ServerState, clients: Mapping[Handle, Client]) -> Int[ndarray, " clusters"]:
    """Return n_j: how many examples each cluster trains on, by latest choices."""
    sizes = np.zeros(len(state.clusters), dtype=np.int64)
    for handle, j in state.assignment.items():
        sizes[j] += len(clients[handle].train)
    return sizes


def _pulled(
    clusters: tuple[Params, ...],
    sizes: Int[ndarray, " clusters"],
    pulls: Float[ndarray, "clusters layers"],
    layers: Sequence[Sequence[str]],
) -> tuple[Params, ...]:
    """Return the models after the pull; integer buffers stay each cluster's own."""
    if not sizes.any():
        return clusters
    shared = sizes[:, None] * (1 - pulls)
    weights = np.where(shared.sum(axis=0) > 0, shared, sizes[:, None])
    weights = torch.from_numpy(weights / weights.sum(axis=0))
    depth = {name: layer for layer, names in enumerate(layers) for name in names}
    shared = {
        name: torch.tensordot(
            weights[:, depth[name]].to(value),
            torch.stack([model[name] for model in clusters]),
            dims=1,
        )
        for name, value in clusters[0].items()
        if value.is_floating_point()
    }
    return tuple(
        {
            name: value.lerp(shared[name], float(pull[depth[name]])) if name in shared else value
            for name, value in model.items()
        }
        for model, pull in zip(clusters, pulls, strict=True)
    )
