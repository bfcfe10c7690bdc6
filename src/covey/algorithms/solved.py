"""Ridge heads: FedAvg, IFCA and IFCA-MIR in closed form, without gradients."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from covey.algorithms.algorithm import Clustered, Subtractable
from covey.algorithms.clients import Clients, Setup
from covey.algorithms.releases import (
    Release,
    ReleasedHeads,
    head_alone,
    heads_of_release,
    release_of,
    theta_alone,
)
from covey.algorithms.selection import ClusterSelection, Weighted
from covey.algorithms.simulated import Simulated
from covey.algorithms.start import gap_split
from covey.algorithms.state import RoundResult, ServerState
from covey.algorithms.sums import SumSource, counted_sums, without_leavers
from covey.base.component_state import ComponentState
from covey.base.components import AboveZero, Part, Positive, Share
from covey.base.errors import ConfigError
from covey.base.events import ClientsAssigned, Event, GroupsSought, HeadsSolved, ModelsMerged
from covey.base.names import Handle, Params
from covey.base.params import model_hash
from covey.base.rng import Streams
from covey.data.examples import Examples
from covey.engine.fixed_features import LocalRecords, is_head, params_of, width_of
from covey.membership.references import PlayRound
from covey.models.ridge_noise import HeadNoise
from covey.models.ridge_state import ClusterSums, SumNoise
from covey.models.ridge_sums import WEIGHT_STEPS, Rows

MEANS = "mean features"


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


class Solved(Subtractable):
    """FedAvg, IFCA and IFCA-MIR with ridge heads in closed form, from sums.

    What it gives away, and under which noise: `docs/concepts/ridge-heads.md`.

        A_i = w_i sum_r phi_r phi_r^T,    B_i = w_i sum_r phi_r t_r^T
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
        regularisation: lambda, above 0: in units of m; of the noise's largest eigenvalue
            where sums are noisy; where heads are hidden, for features of norm 1.
        exposure: tau: where heads are hidden (`privacy.record_noise`), the largest success
            of any attack on any record, which sets w_i: "accepted": what each client
            accepts; or one number for all; 1: all at weight 1.
        releases: how many heads a client's records may be in for that to hold: choices
            make new ones. When they are spent, everybody stays, and who comes is not in
            the head. Who leaves is taken out even then.
        select_on: `train`: on its own examples, by heads that never met the client, or
            that are under noise; `holdout`: on the examples that it holds out.

    References:
        Ghosh et al., An Efficient Framework for Clustered Federated Learning, 2020.
        Wang, Revisiting Differentially Private Linear Regression (AdaSSP), 2018.
    """

    trains: ClassVar[bool] = False
    sends_sums: ClassVar[bool] = True
    seen: ClassVar[str] = SEEN

    selection: Annotated[ClusterSelection, Part("selection")] = Weighted()
    pooling: Share = 0.0
    regularisation: AboveZero = 1.0
    exposure: Literal["accepted"] | Annotated[float, Field(gt=0.5, le=1)] = 1.0
    releases: Positive = 1

    def head_noise(self, clip: float, multiplier: float, classes: int) -> HeadNoise | None:
        """Return what hides records in heads, as `privacy.record_noise` asks.

        Raises:
            ConfigError: `exposure` takes noise, or noise does not go with `pooling`.
        """
        if multiplier == 0:
            if self.exposure != 1:
                raise ConfigError(
                    f"method.exposure bounds what a head reveals about a record, by "
                    f"noise on the head; found exposure = {self.exposure!r} and "
                    f"privacy.record_noise = 0. Set privacy.record_noise, for example to "
                    f"0.594, or exposure = 1."
                )
            return None
        if self.pooling and self.num_clusters > 1:
            raise ConfigError(
                f"A record hides in the head of one cluster (privacy.record_noise), found "
                f"method.pooling = {self.pooling}, by which it is in all of them. Set "
                f"method.pooling = 0, or method.num_clusters = 1."
            )
        return HeadNoise(clip, multiplier, self.regularisation, classes)

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
        source = self._source(clients, streams)
        state, chosen, events = self._choice(state, clients, streams)
        chosen = clients.as_recorded(state, chosen)
        source, chosen = self._ready(state, chosen, source)
        converged = convergence_after(state, chosen)
        played = self._solved(state, chosen, source, streams)
        after = played.state.keeping(converged)
        return RoundResult(after, (*events, *played.events))

    def without(self, state: ServerState, leavers: Clients) -> ServerState:
        """Return the state in which the sums lack what these clients added."""
        return without_leavers(state, leavers.cohort, self._source(leavers, Streams(0)))

    def solve(
        self, state: ServerState, chosen: ClientsAssigned, clients: Clients, streams: Streams
    ) -> RoundResult:
        """Solve every cluster's head for these choices; no client chooses again."""
        source, chosen = self._ready(state, chosen, self._source(clients, streams))
        return self._solved(state, chosen, source, streams)

    def _source(self, clients: Clients, streams: Streams) -> SumSource:
        """Return the way to sums."""
        everybody = {client.handle: client for client in clients.setup.population}
        return SumSource(clients.federation, everybody, streams, clients.setup.min_cohort)

    def _ready(
        self, state: ServerState, chosen: ClientsAssigned, source: SumSource
    ) -> tuple[SumSource, ClientsAssigned]:
        """Ask clients that come or move for their sums; one that sends none has not chosen."""
        weights = self._weights(state, chosen.clusters, source)
        source = source.ready(state, chosen.clusters, weights)
        lacking = source.federation.lacking
        there = {h: j for h, j in chosen.clusters.items() if h not in lacking}
        return source, replace(chosen, clusters=there)

    def _weights(
        self, state: ServerState, clusters: Mapping[Handle, int], source: SumSource
    ) -> dict[Handle, int]:
        """Return with what weight each client's records enter, in steps of its grid."""
        noise = source.federation.noise
        if not isinstance(noise, HeadNoise):
            return dict.fromkeys(clusters, WEIGHT_STEPS)
        if self._is_spent(state):
            known = state.kept(ClusterSums).counted
            return {h: known[h][1] if h in known else 0 for h in clusters}

        def accepted(handle: Handle) -> float:
            if self.exposure == "accepted":
                return source.everybody[handle].preference.risk_threshold
            return self.exposure

        if self.exposure == 1:
            return dict.fromkeys(clusters, WEIGHT_STEPS)
        return {h: noise.weight_for(accepted(h), self.releases) for h in clusters}

    def _is_spent(self, state: ServerState) -> bool:
        """Say whether no further head may be released but for who leaves."""
        limited = self.exposure != 1
        return limited and state.kept(ReleasedHeads).rounds >= self.releases

    def _solved(
        self, state: ServerState, chosen: ClientsAssigned, source: SumSource, streams: Streams
    ) -> RoundResult:
        """Count the sums of clients that chose, and solve every cluster's head."""
        state, clusters, waited = source.counting(state, chosen.clusters)
        there = {h: j for h, j in chosen.clusters.items() if h in clusters}
        chosen = replace(chosen, clusters=there)
        weights = self._weights(state, clusters, source)
        counted = counted_sums(state, clusters, weights, source)
        k = len(state.clusters)
        coefficients = {
            "pooling": (self.pooling,) * k,
            "regularisation": (self.regularisation,) * k,
        }
        sums = counted.model_copy(update=coefficients)
        in_each = sums.clients_per_cluster()
        release = self._release(state, sums, source, streams)
        models = tuple(
            params_of(release.theta(j)) if in_each[j] else model
            for j, model in enumerate(state.clusters)
        )
        counts = Counter(chosen.clusters.values())
        after = state.with_choices(chosen.clusters).keeping(sums, *release.kept, Converged())
        solved = HeadsSolved(release.digests, in_each, sums.pooling, sums.regularisation)
        participants = tuple(counts[j] for j in range(len(models)))
        merged = ModelsMerged(model_hash(models), participants)
        events = (*source.federation.facts, chosen, *waited, *release.facts)
        return RoundResult(after.with_models(models), (*events, solved, merged))

    def _release(
        self, state: ServerState, sums: ClusterSums, source: SumSource, streams: Streams
    ) -> Release:
        """Return every cluster's head, under whatever noise there is."""
        there, noise = source.federation, source.federation.noise
        if not isinstance(noise, HeadNoise):
            return release_of(state, sums, noise, streams)
        assert isinstance(there, Simulated)  # no others have noise  # noqa: S101

        def rows(handle: Handle, weight: int) -> Rows:
            return there.features.rows(source.everybody[handle].train, weight)

        return heads_of_release(state, sums, noise, rows, streams)

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
        hidden = isinstance(clients.federation.noise, HeadNoise)
        converged = not self.choice.has_state and has_converged(state, clients)
        if converged or (hidden and self._is_spent(state)):
            stay = {c.handle: state.assignment.get(c.handle, 0) for c in clients.cohort}
            return state, ClientsAssigned(stay, "clients"), ()
        exact = self.select_on == "train" and clients.federation.noise is None
        known = state.kept(ClusterSums) if exact else None
        choice = clients.comparing(known, last=last).choose(state, streams)
        return choice.state, ClientsAssigned(choice.clusters, "clients"), choice.events

    def reference_round(self, records: LocalRecords) -> PlayRound:
        """Return how an auditor solves one head from other records, in a first round."""

        def play_round(
            index: int, params: Params, sets: tuple[Examples, ...], streams: Streams
        ) -> Params:
            if self.pooling != 0 and self.num_clusters > 1:
                raise ConfigError(NO_REFERENCE)
            if index:
                return params  # a head depends on no earlier one
            # of clients at weights of their own, the middle one
            weight = WEIGHT_STEPS // (2 if self.exposure == "accepted" else 1)
            sums = records.sums(((each, weight) for each in sets), width_of(params))
            noise = (
                records.noise.of(len(sets))
                if isinstance(records.noise, SumNoise)
                else records.noise
            )
            if isinstance(noise, HeadNoise):
                return params_of(theta_alone(sums, noise, streams, sums.digest()))
            head = head_alone(sums, self.regularisation, noise, streams)
            return params_of(head.theta)

        return play_round
