"""IFCA and IFCA-MIR: one round, read beside Algorithm 1 of the IFCA-MIR paper.

An optional limit on the clients that switch clusters per round is here as well. The server sees
of a client's choice only the cluster: without a limit, a few clients that choose the same small
cluster are its majority in one round, and decide what a robust aggregation returns.

References:
    Ghosh, Chung, Yin, Ramchandran, An Efficient Framework for Clustered Federated
    Learning, 2020.
    Jung, Biswas, Palamidessi, Mitigating Membership Inference Vulnerability in
    Personalized Federated Learning (IFCA-MIR), 2025, Algorithm 1.
"""

import math
from collections.abc import Mapping
from typing import Annotated

from covey.algorithms.algorithm import Clustered, Opening
from covey.algorithms.clients import Clients, Setup
from covey.algorithms.selection import ClusterSelection, ComparesOn, SelectionResult, Weighted
from covey.algorithms.start import opening_round
from covey.algorithms.state import RoundResult, ServerState, initial_state
from covey.base.built_ins import component
from covey.base.component_state import ComponentState
from covey.base.components import Count, Part, Share
from covey.base.events import ClientsAssigned, NewcomersWaited, RiskUnknown
from covey.base.names import Handle
from covey.base.rng import Streams


class InitialMembers(ComponentState):
    """The cluster that each client was in when clients first chose for themselves."""

    key = "initial-members"
    clusters: Mapping[Handle, int] = {}


def limit_cluster_switches(
    choice: SelectionResult,
    before: ServerState,
    share: float,
    streams: Streams,
    recorded: Mapping[Handle, int] | None = None,
) -> SelectionResult:
    """Return the choices without the newcomers for which a cluster has no room.

    Of the clients that choose a cluster, its initial members F always train it, and of the others
    max(1, floor(share |F|)), drawn anew in every round. The rest do not train in this round, and
    count in the cluster where they were. Where no initial member takes part there is no limit.

    The initial members of a cluster are the clients that it had when clients first chose for
    themselves (after a warm start), or else those that chose it then. No client becomes one later:
    otherwise it would be enough to wait.

    Args:
        choice: what the clients chose.
        before: the state before the round.
        share: newcomers per initial member.
        streams: of the round.
        recorded: who trained what when the round was played first: that is repeated.
    """
    clusters = choice.clusters
    founded = before.get_state(InitialMembers).clusters or before.assignment or clusters
    state = choice.state.with_state(InitialMembers(clusters=dict(founded)))
    choice = choice._replace(state=state)
    if recorded is not None:
        again = {h: j for h, j in clusters.items() if h in recorded}
        return choice._replace(clusters=again)
    waiting: set[Handle] = set()
    facts: list[NewcomersWaited] = []
    for j in sorted(set(clusters.values())):
        here = sorted(h for h, chosen in clusters.items() if chosen == j)
        new = [h for h in here if founded.get(h) != j]
        initial = len(here) - len(new)
        room = max(1, math.floor(share * initial + 1e-9))  # .7 * 10 is below 7
        if not initial or len(new) <= room:
            continue
        order = streams.at("newcomers", j).generator().permutation(len(new))
        out = [new[i] for i in order[room:]]
        waiting.update(out)
        facts.append(NewcomersWaited(j, initial, len(new), len(out)))
    return choice._replace(
        clusters={h: j for h, j in clusters.items() if h not in waiting},
        events=(*choice.events, *facts),
    )


@component("algorithm", "ifca")
class Ifca(Clustered):
    """Let every client train the cluster model with the lowest loss on its examples.

    j_i = argmin_j f(theta_j, xi_i)

    Attributes:
        select_examples: models are compared on so many examples, drawn in every round; 0:
            all.
        same_batch: a client compares the models on the mini-batch of the step that follows,
            as Algorithm 1 of IFCA-MIR has it (lines 10 to 13), and not on examples that are
            drawn for it; for `train.local_steps = 1`.
        max_newcomers: newcomers per initial member: of the clients that began in another cluster,
            or came later, so many train a cluster in a round for each of its own that is
            there, at least one, drawn anew every round; the others sit out, honest ones
            that move late too. 0: no bound. Against clients that choose a small cluster to
            be its majority (`benchmarks/results/poisoning.md`).
    """

    select_examples: Count = 0
    same_batch: bool = False
    max_newcomers: Share = 0.0

    @property
    def compares_on(self) -> ComparesOn:
        """As the settings say."""
        return ("batch", 0) if self.same_batch else (self.select_on, self.select_examples)

    @property
    def enters_at_will(self) -> bool:
        """Whether clients enter any cluster by their loss alone, once groups were found."""
        return "selection" not in type(self).model_fields and self.starts_warm

    def opening(self, rounds: int) -> Opening:
        """Return how a run of so many rounds begins: before clients choose for themselves."""
        alone = self.initialisation == "warm" and not self.starts_warm
        how = "random" if alone else self.initialisation
        return Opening(how, min(3, rounds // 4), max(1, min(4, rounds // 4)))

    def init(self, setup: Setup, streams: Streams) -> ServerState:
        """Draw a model for each cluster (line 2), or one for all until the opening splits them."""
        if self.initialisation != "random":
            return super().init(setup, streams)
        drawn = (streams.at("initial model", j) for j in range(self.num_clusters))
        return initial_state(tuple(map(setup.draw_model, drawn)))

    def round(self, state: ServerState, clients: Clients, streams: Streams) -> RoundResult:
        """Let clients choose, train what they chose, and aggregate per cluster."""
        opening = self.opening(clients.setup.rounds)
        played = opening_round(opening, state, clients, streams)
        if played is not None:
            return played
        choice = self.choose(state, clients, streams)  # line 12
        chosen = ClientsAssigned(choice.clusters, "clients")
        moved = clients.train_and_aggregate(  # lines 13-17
            choice.state, chosen, streams, choice.updates
        )
        return moved.preceded_by(choice.events)

    def choose(self, state: ServerState, clients: Clients, streams: Streams) -> SelectionResult:
        """Let clients take their clusters, as far as there is room for newcomers."""
        choice = clients.choose(state, streams)
        if self.max_newcomers == 0:
            return choice
        then = clients.recorded.get(state.round_index)
        return limit_cluster_switches(choice, state, self.max_newcomers, streams, then)

    def finalize(self, state: ServerState, clients: Clients, streams: Streams) -> RoundResult:
        """Let clients choose once more."""
        choice = clients.reassign(state, streams)
        final = ClientsAssigned(choice.clusters, "final")
        return RoundResult(choice.state.with_choices(final.clusters), (*choice.events, final))


@component("algorithm", "ifca-mir", default=True)
class IfcaMir(Ifca):
    """Let every client weigh each cluster's loss against its measured risk.

    j_i = argmin_j alpha_i f(theta_j, xi_i) + beta_i risk_j, or by another selection

    The risks are those that a red team, or each client, measured before the round
    (`covey.algorithms.redteam`).

    Attributes:
        selection: how a client takes its cluster.
    """

    selection: Annotated[ClusterSelection, Part("selection")] = Weighted()

    def choose(self, state: ServerState, clients: Clients, streams: Streams) -> SelectionResult:
        """Let clients choose, and say of which clusters they knew no risk."""
        choice = super().choose(state, clients, streams)
        known = [state.known_risks(client.handle) for client in clients.cohort]
        missing = [
            j
            for j, is_available in enumerate(state.available())
            if is_available and any(row[j] is None for row in known)
        ]
        if clients.own_risks or not missing:
            return choice
        return choice._replace(events=(RiskUnknown(tuple(missing)), *choice.events))
