"""Ridge heads: FedAvg, IFCA and IFCA-MIR in closed form, without gradients."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, ClassVar, NamedTuple

import numpy as np

from covey.algorithms.algorithm import Clustered, Traits
from covey.algorithms.clients import Clients, Comparison, Setup, SumsAnswer
from covey.algorithms.selection import ClusterSelection, Weighted
from covey.algorithms.start import gap_split
from covey.algorithms.state import Cohort, RoundResult, ServerState
from covey.base.built_ins import component
from covey.base.component_state import ComponentState
from covey.base.components import AboveZero, Part, Share
from covey.base.errors import ConfigError, RunError
from covey.base.events import ClientsAssigned, Event, GroupsSought, HeadsSolved, ModelsMerged
from covey.base.names import Handle, Params
from covey.base.params import model_hash
from covey.base.rng import Streams
from covey.data.examples import Client, Examples
from covey.engine.fixed_features import LocalRecords
from covey.membership.references import PlayRound
from covey.ridge.head import ClusterSums, is_head, shape_of, solved_head
from covey.ridge.sums import SumCohorts, Sums

MEANS = "mean features"

SEEN = (
    "The server is sent every client's sums by themselves: of a client with fewer records "
    "than features they give the features away."
)

NO_REFERENCE = (
    "Models to compare with must be solved from one cluster's records, as an attack with others is "
    "too kind, found method.name = 'ridge' whose heads lean on other clusters: audit a run with "
    "pooling = 0, or by the attack weights, which needs none: covey audit RUN --attack weights."
)

NOT_WITHOUT = (
    "Sums under masks must be made anew by nodes whose node.toml says which client left, found "
    "none that do: set leave = true in its node.toml and start it, or name it in `left` in the "
    "node.toml of those who stay."
)


class Recount(NamedTuple):
    """What came of counting clients where they chose to be.

    Attributes:
        state: with the sums after it.
        chosen: the choices that are in them.
        events: what is to be recorded of clients' answers.
    """

    state: ServerState
    chosen: Mapping[Handle, int]
    events: tuple[Event, ...]


def recount(state: ServerState, chosen: Mapping[Handle, int], clients: Clients) -> Recount:
    """Count clients where they chose to be: who moves is taken off, and added anew.

    A client whose sums are missing stays where it was, in a cluster or in none. Where somebody
    left whose sums are in the others' still, all are made anew.

    Args:
        state: before it.
        chosen: the clusters of the clients that chose.
        clients: the way to anybody's sums.
    """
    known = state.get_state(ClusterSums)
    counted = {**known.counted, **chosen}
    if not known.is_whole:
        known = known.of((), {})
        state = state.with_state(known)
    moves = [
        (j, is_added, group)
        for j in range(len(state.clusters))
        for is_added, group in (
            (True, _differing(counted, known.counted, j)),
            (False, _differing(known.counted, counted, j)),
        )
        if group
    ]
    if known.sums and not moves:
        return Recount(state, chosen, ())
    everybody = {client.handle: client for client in clients.setup.population}
    groups = [tuple(everybody[handle] for handle in group) for _, _, group in moves]
    minimum = clients.setup.min_cohort
    answer = clients.federation.sums(state, groups, minimum) if groups else SumsAnswer()
    sums = list(known.sums) or [Sums.nothing(*shape_of(state.clusters[0]))] * len(state.clusters)
    for (j, is_added, _), total in zip(moves, answer.sums, strict=True):
        sums[j] = sums[j] + total if is_added else sums[j] - total
    arrived = {h: j for h, j in counted.items() if h not in answer.missing}
    counted = {**known.counted, **arrived}
    digests = {**known.digests, **answer.digests}
    digests = {handle: digest for handle, digest in digests.items() if handle in counted}
    cohorts = state.get_state(SumCohorts).with_groups(answer.together)
    state = state.with_state(known.of(tuple(sums), counted, digests), cohorts)
    return Recount(state, {h: j for h, j in chosen.items() if h in arrived}, answer.events)


def _differing(these: Mapping[Handle, int], those: Mapping[Handle, int], j: int) -> list[Handle]:
    """Return who is in a cluster of these and not of those."""
    return [h for h, own in sorted(these.items()) if own == j and those.get(h) != j]


def without_leavers(state: ServerState, leavers: Clients) -> ServerState:
    """Return the state after the sums of clients that leave were subtracted.

    Where somebody's cannot be, those of all others are counted anew: of remote clients
    now, as no client gets a request once the answer is recorded.

    Raises:
        RunError: under masks, too few of those who stay send theirs.
    """
    known = state.get_state(ClusterSums)
    stay = state.without({client.handle for client in leavers.cohort})
    if not known.sums:
        return stay
    if known.is_whole:
        inside = defaultdict[int, list[Client]](list)
        for client in leavers.cohort:
            if (j := known.counted.get(client.handle)) is not None:
                inside[j].append(client)
        answer = leavers.federation.sums(state, [*map(tuple, inside.values())])
        if not answer.missing:
            sums, left = list(known.sums), stay.get_state(ClusterSums)
            for j, total in zip(inside, answer.sums, strict=True):
                sums[j] -= total
            return stay.with_state(left.of(tuple(sums), left.counted))
    elif not leavers.federation.is_remote:
        return stay
    anew, _, _ = recount(stay, {}, leavers)
    counted = anew.get_state(ClusterSums).counted
    if leavers.setup.min_cohort and not counted:
        raise RunError(NOT_WITHOUT)
    return anew.without(stay.assignment.keys() - counted.keys())


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
        return clients.all_in_one("shared"), ()
    by_handle = clients.federation.means(state, cohort)
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

    @classmethod
    def after(cls, state: ServerState, chosen: Mapping[Handle, int]) -> "Converged":
        """Return who stayed where it was in this round too, and what it knew then."""
        before, known, risks = state.assignment, state.get_state(cls), _risks(state)
        if any(before.get(handle) != j for handle, j in chosen.items()):
            return cls()
        earlier = known.stayed if known.risks == risks else frozenset[Handle]()
        return cls(stayed=earlier | chosen.keys(), risks=risks)

    def holds(self, state: ServerState, cohort: Cohort) -> bool:
        """Say whether a choice would be the last one again: then no client gets a request."""
        stayed = all(client.handle in self.stayed for client in cohort)
        return stayed and self.risks == _risks(state)


def _risks(state: ServerState) -> tuple[float | None, ...]:
    return tuple(estimate and estimate.risk for estimate in state.risk_estimates())


@component("algorithm", "ridge")
class Ridge(Clustered):
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

    # sums are over all clients that chose so far, present or not
    traits: ClassVar[Traits] = Traits(
        trains=False, subtracts=True, reads_population=True, sends_sums=True, seen=SEEN
    )

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
                "Heads must be solved on features that do not train, found others: set model.name "
                "= 'linear-head', or give `features` without parameters and a linear `head`."
            )
        sums = ClusterSums(pooling=self.pooling, regularisation=self.regularisation)
        return state.with_state(sums)

    def round(self, state: ServerState, clients: Clients, streams: Streams) -> RoundResult:
        """Let clients choose, count their sums, and solve every cluster's head."""
        if not len(clients):
            merged = ModelsMerged(model_hash(state.clusters), (0,) * len(state.clusters))
            none = clients.all_in_one("clients")
            return RoundResult(state.with_models(state.clusters), (none, merged))
        state, chosen, events = self._choice(state, clients, streams)
        chosen = clients.as_recorded(state, chosen)
        counted = recount(state, chosen.clusters, clients)
        played = self._solve_heads(counted, chosen)
        converged = Converged.after(state, counted.chosen)
        return RoundResult(played.state.with_state(converged), (*events, *played.events))

    def without(self, state: ServerState, leavers: Clients) -> ServerState:
        """Return the state in which the sums lack what these clients added.

        Nothing can be subtracted of a client that is not among them: the sums are then made
        anew, of all others'.
        """
        return without_leavers(state, leavers)

    def solve(self, state: ServerState, chosen: ClientsAssigned, clients: Clients) -> RoundResult:
        """Solve every cluster's head for these choices; no client chooses again.

        A head that no sums determine stays as it is. Clients that the choices have and the
        sums do not are counted.
        """
        return self._solve_heads(recount(state, chosen.clusters, clients), chosen)

    def _solve_heads(self, recounted: Recount, chosen: ClientsAssigned) -> RoundResult:
        """Solve every cluster's head; a client that sends no sums has not chosen."""
        state, counted, events = recounted
        sums, clusters = state.get_state(ClusterSums), range(len(state.clusters))
        in_each = sums.clients_per_cluster
        models = tuple(sums.head(j).params if in_each[j] else state.clusters[j] for j in clusters)
        counts, k = Counter(counted.values()), len(clusters)
        digests = tuple(cluster_sum.digest() for cluster_sum in sums.sums)
        facts = (
            *events,
            replace(chosen, clusters=counted),
            HeadsSolved(digests, in_each, (self.pooling,) * k, (self.regularisation,) * k),
            ModelsMerged(model_hash(models), tuple(counts[j] for j in clusters)),
        )
        after = state.with_choices(counted).with_state(Converged())
        return RoundResult(after.with_models(models), facts)

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
            return state, clients.all_in_one("shared"), ()
        if not state.assignment:
            return state, *first_clusters(self, state, clients, streams)
        if not self.choice.has_state and state.get_state(Converged).holds(state, clients.cohort):
            stay = {c.handle: state.assignment.get(c.handle, 0) for c in clients.cohort}
            return state, ClientsAssigned(stay, "clients"), ()
        known = state.get_state(ClusterSums) if self.select_on == "train" else None
        choice = clients.compare(state, streams, Comparison(known, last))
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
            d, classes = shape_of(params)
            sums, nothing = records.sums(sets, d), Sums.nothing(d, classes)
            return solved_head(sums, nothing, 0.0, self.regularisation).params

        return play_round
