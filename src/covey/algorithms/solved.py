"""Ridge heads: FedAvg, IFCA and IFCA-MIR in closed form, without gradients."""

from collections import Counter
from dataclasses import replace
from typing import Annotated, ClassVar

import numpy as np

from covey.algorithms.algorithm import Clustered, Subtractable
from covey.algorithms.clients import Clients, Setup
from covey.algorithms.selection import ClusterSelection, Weighted
from covey.algorithms.start import gap_split
from covey.algorithms.state import RoundResult, ServerState
from covey.algorithms.sums import SumSource, counted_sums, without_leavers
from covey.base.built_ins import component
from covey.base.component_state import ComponentState
from covey.base.components import AboveZero, Part, Share
from covey.base.errors import ConfigError
from covey.base.events import ClientsAssigned, Event, GroupsSought, HeadsSolved, ModelsMerged
from covey.base.names import Handle, Params
from covey.base.params import model_hash
from covey.base.rng import Streams
from covey.data.examples import Examples
from covey.engine.fixed_features import LocalRecords, is_head, params_of, width_of
from covey.membership.references import PlayRound
from covey.models.ridge_state import ClusterSums
from covey.models.ridge_sums import Sums, solved_head

MEANS = "mean features"

DIGEST_STEPS = 2**8
"""In a step of the grid: the steps in which a ledger's digests of sums count."""


def first_clusters(
    method: Clustered, state: ServerState, clients: Clients, streams: Streams
) -> tuple[ClientsAssigned, tuple[Event, ...]]:
    """Return the first clusters: known, by chance, or found in the mean features.

    Args:
        method: how clusters start, and how many there are.
        state: before the first round.
        clients: of the first round.
        streams: of the round.
    """
    cohort, num_clusters = clients.cohort, method.num_clusters
    if method.initialisation == "groups":
        known = {c.handle: c.group or 0 for c in cohort}
        return ClientsAssigned(known, "groups"), ()
    if method.initialisation == "random":
        draws = {c.handle: streams.at("start", c.name).generator() for c in cohort}
        drawn = {h: int(draw.integers(num_clusters)) for h, draw in draws.items()}
        return ClientsAssigned(drawn, "chance"), ()
    if len(cohort) <= num_clusters:
        return clients.all_in(0, "shared"), ()
    d = width_of(state.clusters[0])
    by_handle = clients.federation.means(cohort, d, state.round_index)
    if len(by_handle) <= num_clusters:
        return ClientsAssigned(dict.fromkeys(by_handle, 0), "shared"), ()
    means = np.stack([mean.numpy() for mean in by_handle.values()])
    split = gap_split(means, num_clusters, streams.at("split").generator())
    parts = {h: int(j) for h, j in zip(by_handle, split.labels, strict=True)}
    sought = GroupsSought({MEANS: split.gap}, MEANS, "the mean of its features")
    return ClientsAssigned(parts, "split"), (sought,)


class Converged(ComponentState):
    """No client moved since heads were last solved from other sums.

    Attributes:
        stayed: who chose among the heads as they are, and stayed.
        risks: what was known of the clusters then; empty where somebody moved.
    """

    key = "converged"
    stayed: frozenset[Handle] = frozenset()
    risks: tuple[float | None, ...] = ()


def convergence_after(state: ServerState, chosen: ClientsAssigned) -> Converged:
    """Return who stayed where it was in this round too, and what it knew then."""
    before, known, risks = state.assignment, state.kept(Converged), _risks(state)
    if any(before.get(handle) != j for handle, j in chosen.clusters.items()):
        return Converged()
    earlier = known.stayed if known.risks == risks else frozenset[Handle]()
    return Converged(stayed=earlier | chosen.clusters.keys(), risks=risks)


def has_converged(state: ServerState, clients: Clients) -> bool:
    """Say whether a choice would be the last one again: then no client gets a request."""
    known = state.kept(Converged)
    stayed = all(client.handle in known.stayed for client in clients.cohort)
    return stayed and known.risks == _risks(state)


def _risks(state: ServerState) -> tuple[float | None, ...]:
    return tuple(each and each.risk for each in state.risk_estimates())


SEEN = (
    "The server is sent every client's sums by themselves: of a client with fewer records "
    "than features they give the features away."
)


NO_REFERENCE = (
    "Models to compare with are solved from one cluster's records alone, found "
    "method.name = 'solved' whose heads lean on other clusters: such models would be "
    "another recipe's, and an attack with them too kind. Audit a run with pooling = 0, or "
    "with the attack weights alone, which needs no such models: covey audit RUN --attack "
    "weights."
)


@component("algorithm", "solved")
class Solved(Subtractable):
    """FedAvg, IFCA and IFCA-MIR with ridge heads in closed form, from sums.

    What it gives away: `docs/concepts/ridge-heads.md`.

        A_i = sum_r phi_r phi_r^T,    B_i = sum_r phi_r t_r^T
        theta_j = (A_j + gamma A_rest + lambda m I)^-1 (B_j + gamma B_rest)
        j_i = argmin_j alpha_i f(theta_j without client i, xi_i) + beta_i risk_j

    phi are features in which no client's data are, t = onehot - 1 / classes, m the mean
    diagonal of sum_i A_i. Data reach the heads through sums alone, which are whole numbers:
    taking a client's off leaves, to the last bit, the sums of those who stay. With one
    cluster this is FedAvg, by the choice `loss` IFCA.

    Attributes:
        initialisation: `warm`: k-means on the clients' mean features; `random`: each in a
            cluster by chance; `groups`: the true ones, an oracle.
        selection: how a client takes its cluster.
        pooling: gamma: 0, a cluster's own records alone, to 1, everybody's alike.
        regularisation: lambda, above 0: in units of m.
        select_on: `train`: on its own examples, by heads that never met the client;
            `holdout`: on the examples that it holds out.

    References:
        Ghosh et al., An Efficient Framework for Clustered Federated Learning, 2020.
    """

    trains: ClassVar[bool] = False
    sends_sums: ClassVar[bool] = True
    seen: ClassVar[str] = SEEN

    selection: Annotated[ClusterSelection, Part("selection")] = Weighted()
    pooling: Share = 0.0
    regularisation: AboveZero = 1.0

    def init(self, setup: Setup, streams: Streams) -> ServerState:
        """Return heads without any client, all alike.

        Raises:
            ConfigError: the model is no head on fixed features.
        """
        state = super().init(setup, streams)
        if not is_head(state.clusters[0]):
            raise ConfigError(
                "Heads are solved on features that do not train, found another model. Set "
                "model.name = 'linear-head', or give yours `features` without parameters "
                "and a linear `head`."
            )
        return state

    def round(self, state: ServerState, clients: Clients, streams: Streams) -> RoundResult:
        """Let clients choose, count their sums, and solve every cluster's head."""
        if not len(clients):
            merged = ModelsMerged(model_hash(state.clusters), (0,) * len(state.clusters))
            none = clients.all_in(0, "clients")
            return RoundResult(state.with_models(state.clusters), (none, merged))
        state, chosen, events = self._choice(state, clients, streams)
        chosen = clients.as_recorded(state, chosen)
        source, chosen = self._ready(state, chosen, clients)
        converged = convergence_after(state, chosen)
        played = self._solved(state, chosen, source)
        after = played.state.keeping(converged)
        return RoundResult(after, (*events, *played.events))

    def without(self, state: ServerState, leavers: Clients) -> ServerState:
        """Return the state in which the sums lack what these clients added."""
        return without_leavers(state, leavers.cohort, self._source(leavers))

    def solve(self, state: ServerState, chosen: ClientsAssigned, clients: Clients) -> RoundResult:
        """Solve every cluster's head for these choices; no client chooses again."""
        source, chosen = self._ready(state, chosen, clients)
        return self._solved(state, chosen, source)

    def _source(self, clients: Clients) -> SumSource:
        """Return the way to sums."""
        everybody = {client.handle: client for client in clients.setup.population}
        return SumSource(clients.federation, everybody, clients.setup.min_cohort)

    def _ready(
        self, state: ServerState, chosen: ClientsAssigned, clients: Clients
    ) -> tuple[SumSource, ClientsAssigned]:
        """Ask clients that come or move for their sums; one that sends none has not chosen."""
        source = self._source(clients).ready(state, chosen.clusters)
        lacking = source.federation.lacking
        there = {h: j for h, j in chosen.clusters.items() if h not in lacking}
        return source, replace(chosen, clusters=there)

    def _solved(
        self, state: ServerState, chosen: ClientsAssigned, source: SumSource
    ) -> RoundResult:
        """Count the sums of clients that chose, and solve every cluster's head."""
        state, clusters, waited = source.counting(state, chosen.clusters)
        there = {h: j for h, j in chosen.clusters.items() if h in clusters}
        chosen = replace(chosen, clusters=there)
        counted = counted_sums(state, clusters, source)
        k = len(state.clusters)
        coefficients = {
            "pooling": (self.pooling,) * k,
            "regularisation": (self.regularisation,) * k,
        }
        sums = counted.model_copy(update=coefficients)
        in_each = sums.clients_per_cluster()
        digests = tuple(each.times(DIGEST_STEPS).digest() for each in sums.sums)
        models = tuple(
            params_of(sums.head(j).theta) if in_each[j] else model
            for j, model in enumerate(state.clusters)
        )
        counts = Counter(chosen.clusters.values())
        after = state.with_choices(chosen.clusters).keeping(sums, Converged())
        solved = HeadsSolved(digests, in_each, sums.pooling, sums.regularisation)
        participants = tuple(counts[j] for j in range(len(models)))
        merged = ModelsMerged(model_hash(models), participants)
        events = (*source.federation.facts, chosen, *waited, solved, merged)
        return RoundResult(after.with_models(models), events)

    def finalize(self, state: ServerState, clients: Clients, streams: Streams) -> RoundResult:
        """Let clients choose once more."""
        if not state.assignment or not len(clients):
            return super().finalize(state, clients, streams)
        state, chosen, events = self._choice(state, clients, streams, last=True)
        final = replace(chosen, by="final")
        return RoundResult(state.with_choices(final.clusters), (*events, final))

    def _choice(
        self, state: ServerState, clients: Clients, streams: Streams, *, last: bool = False
    ) -> tuple[ServerState, ClientsAssigned, tuple[Event, ...]]:
        """Return what each client takes: by the start, as before, or by comparing."""
        if self.num_clusters == 1:
            return state, clients.all_in(0, "shared"), ()
        if not state.assignment:
            return state, *first_clusters(self, state, clients, streams)
        if not self.choice.has_state and has_converged(state, clients):
            stay = {c.handle: state.assignment.get(c.handle, 0) for c in clients.cohort}
            return state, ClientsAssigned(stay, "clients"), ()
        known = state.kept(ClusterSums) if self.select_on == "train" else None
        choice = clients.comparing(known, last=last).choose(state, streams)
        return choice.state, ClientsAssigned(choice.clusters, "clients"), choice.events

    def reference_round(self, records: LocalRecords) -> PlayRound:
        """Return how an auditor solves one head from other records, in a first round."""

        def play_round(
            index: int, params: Params, sets: tuple[Examples, ...], streams: Streams
        ) -> Params:
            del streams
            if self.pooling != 0 and self.num_clusters > 1:
                raise ConfigError(NO_REFERENCE)
            if index:
                return params  # a head depends on no earlier one
            sums = records.sums(sets, width_of(params))
            nothing = Sums.nothing(*sums.targets.shape)
            return params_of(solved_head(sums, nothing, 0.0, self.regularisation).theta)

        return play_round
