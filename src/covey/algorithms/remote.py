"""Remote clients: what one message asks of them, and what they answer.

A simulation holds everybody's examples and plays both sides. In a federation the server
holds none: it sends models, and each client measures, chooses and trains by itself. What a
client accepts, what it has found out and how it draws stay on its side; the server learns
the cluster, the update and, where the method needs them, counts.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Never

from jaxtyping import Float64, Int
from numpy import ndarray
from torch import Tensor

from covey.aggregation import ClientUpdate
from covey.algorithms.base import Cohort, ServerState
from covey.algorithms.client_memory import NO_INPUTS, ClientMemory, ObjectiveInputs
from covey.algorithms.cluster_selection import (
    SelectionConfig,
    SelectionResult,
    TrainAtOnce,
    choice_events,
)
from covey.clustering import UNASSIGNED
from covey.components.capability import Capability
from covey.engine.protocol import Recipe
from covey.errors import ConfigError
from covey.heads import Sums
from covey.membership import (
    CountAll,
    RiskEstimate,
    Target,
    combined_counts,
    has_non_finite_values,
)
from covey.membership.base import FEWEST_REPORTING
from covey.rng import Streams
from covey.secure_sums import Step
from covey.types import Handle, Params

__all__ = [
    "ClientContext",
    "ClientRequest",
    "ClientResponse",
    "RemoteClients",
    "RequestType",
    "Send",
    "SumStep",
    "SummedUp",
    "loss_counter",
]

RequestType = Literal[
    "choose", "train", "place", "settle", "count", "compare", "mean", "sum", "masked"
]


@dataclass(frozen=True, slots=True)
class ClientContext:
    """What one client is told of itself.

    Attributes:
        given: the cluster that it trains, or is a member of; None: it is free to choose.
        risks: the valid risk figure of each cluster that is sent to it, if there is one.
        current: the cluster that it chose last, or `UNASSIGNED`.
        memory_round: the round after which it kept what its objective goes on from; None:
            it begins anew.
        weight, shares: its stake in the heads that it compares (`ClusterSums.stake`).
        digest: of the sums that it sent before, which it is to send again; "": of none.
        session: of the round of secure sums that it is in, in hexadecimal digits.
    """

    given: int | None = None
    risks: tuple[RiskEstimate | None, ...] = ()
    current: int = UNASSIGNED
    memory_round: int | None = None
    weight: int = 0
    shares: tuple[float, ...] = ()
    digest: str = ""
    session: str = ""


SummedUp = Literal["sums", "counts", "updates"]


@dataclass(frozen=True, slots=True)
class SumStep:
    """What clients in rounds of secure sums are to send next.

    Attributes:
        step: of the protocol.
        length: how many numbers are added up.
        of: what they are: "sums" over records from which heads are solved, "counts" of
            losses under the model that is sent, or "updates" that are trained from it.
    """

    step: Step
    length: int
    of: SummedUp = "sums"


@dataclass(frozen=True, slots=True, eq=False)
class ClientRequest:
    """One question to some clients, in one message each.

    Attributes:
        task: "choose" a cluster and train its model; "train" the model of the given one;
            "place": name the model with the lowest loss; "settle": choose, and train
            nothing; "count" own losses under the model of the given cluster; "compare":
            choose during a round, and train nothing; "mean" and "sum": of its features;
            "masked": take the next step of a round of secure sums.
        models: by cluster. Whoever is given a cluster needs only that one.
        available: the clusters that may be chosen.
        path: of the streams under which clients draw, each from a seed of its own.
        contexts: one per client that is asked.
        recipe: how to train.
        round_index: of the round, where clients measure risks of their own, or keep
            something for their objective; negative: they are to keep nothing.
        broadcast: what is sent along for their objective, by name.
        roots: of heads that are compared, where somebody is in them (`Head.root`).
        width: how many features a head has, and its bias, where they are asked about.
        features: fingerprint of the feature map; "": no features are fixed.
        sums: which step of secure sums is asked for; None: none.
        letters: what the protocol sends each client for it.
        paths: `path` of each cluster, where it hangs on the one that a client is given.
    """

    task: RequestType
    models: tuple[Params, ...]
    available: tuple[bool, ...]
    path: tuple[str | int, ...]
    contexts: Mapping[Handle, ClientContext]
    recipe: Recipe = field(default_factory=Recipe)
    round_index: int = 0
    broadcast: Mapping[str, Params] = field(default_factory=dict[str, Params])
    roots: Mapping[int, Tensor] = field(default_factory=dict[int, Tensor])
    width: int = 0
    features: str = ""
    sums: SumStep | None = None
    letters: Mapping[Handle, bytes] = field(default_factory=dict[Handle, bytes])
    paths: tuple[tuple[str | int, ...], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class ClientResponse:
    """What one client sent back, found to be in order.

    Attributes:
        cluster: the one that it chose, or was given.
        update: local model minus the one that was sent; None where nothing was trained.
        weight: share in a weighted mean, any positive unit.
        members: counts of its losses on the examples it trains on (`loss_counts`).
        held_out: the same of its holdout.
        sums: over its records, each of weight 1.
        mean: of its features, in steps of the grid.
        letter: what it sends in a step of secure sums.
    """

    handle: Handle
    cluster: int
    update: Params | None = None
    weight: float = 1.0
    members: Int[ndarray, "folds bins"] | None = None
    held_out: Int[ndarray, "folds bins"] | None = None
    sums: Sums | None = None
    mean: Float64[Tensor, " d"] | None = None
    letter: bytes = b""


Send = Callable[[ClientRequest, Cohort], tuple[ClientResponse, ...]]
"""A way to ask clients: answers in the order of the cohort, without who gave none."""


@dataclass(frozen=True, slots=True)
class RemoteClients:
    """How remote clients are asked, and how they train."""

    send: Send
    recipe: Recipe

    def evaluate(
        self, models: tuple[Params, ...], cohort: Cohort, streams: Streams
    ) -> Never:
        """Refuse: nobody but a client knows what it measures.

        Raises:
            ConfigError: always.
        """
        del models, cohort, streams
        raise ConfigError(
            f"This algorithm needs {Capability.ALL_LOSSES.value}, but clients are remote: "
            f"they tell what they choose. Use clients.choose or clients.nearest."
        )

    def nearest(
        self, state: ServerState, cohort: Cohort, streams: Streams
    ) -> Mapping[Handle, int]:
        """Ask clients which cluster's model has the lowest loss on their examples."""
        if not cohort:
            return {}
        contexts = {client.handle: ClientContext() for client in cohort}
        available = (True,) * len(state.clusters)
        request = ClientRequest(
            "place", state.clusters, available, streams.path, contexts
        )
        return {each.handle: each.cluster for each in self.send(request, cohort)}

    def choose(
        self,
        selection: SelectionConfig,
        state: ServerState,
        cohort: Cohort,
        streams: Streams,
        training: TrainAtOnce | None = None,
    ) -> SelectionResult:
        """Let clients choose; they train at once, in the same message, if they are to."""
        given, inputs = training or TrainAtOnce({}, NO_INPUTS)
        contexts = {
            c.handle: ClientContext(
                given=given.get(c.handle),
                risks=state.known_risks(c.handle),
                current=state.assignment.get(c.handle, UNASSIGNED),
                memory_round=state.kept(ClientMemory).rounds.get(c.handle),
            )
            for c in cohort
        }
        request = ClientRequest(
            "settle" if training is None else "choose",
            state.clusters,
            state.available(),
            streams.path,
            contexts,
            self.recipe,
            state.round_index,
            inputs.broadcast,
        )
        responses = self.send(request, cohort)
        clusters = {each.handle: each.cluster for each in responses}
        responding = tuple(client for client in cohort if client.handle in clusters)
        events = choice_events(selection.epsilon, responding)
        return SelectionResult(state, clusters, events, self.updates_of(responses))

    def train(
        self,
        clusters: tuple[Params, ...],
        cohort: Cohort,
        assignment: Mapping[Handle, int],
        streams: Streams,
        inputs: ObjectiveInputs = NO_INPUTS,
    ) -> Iterator[ClientUpdate]:
        """Let every client train from its cluster's model; yield what comes back."""
        contexts = {
            c.handle: ClientContext(
                given=assignment[c.handle],
                memory_round=inputs.memory.rounds.get(c.handle),
            )
            for c in cohort
        }
        request = ClientRequest(
            "train",
            clusters,
            (True,) * len(clusters),
            streams.path,
            contexts,
            self.recipe,
            inputs.round_index,
            inputs.broadcast,
        )
        yield from self.updates_of(self.send(request, cohort))

    def updates_of(
        self, responses: tuple[ClientResponse, ...]
    ) -> tuple[ClientUpdate, ...]:
        """Return what the clients trained."""
        kept: Mapping[str, Params] | None = {} if self.recipe.keeps_memory else None
        return tuple(
            ClientUpdate(each.handle, each.cluster, each.update, each.weight, kept)
            for each in responses
            if each.update is not None
        )


def loss_counter(send: Send) -> CountAll:
    """Return how remote members count their losses for a red team.

    All are asked at once, each about the model of its own cluster. A model whose numbers
    are not finite is sent to nobody.
    """

    def count(
        targets: Sequence[Target], streams: Callable[[int], Streams]
    ) -> list[tuple[ndarray, ndarray]]:
        of = {
            member.handle: place
            for place, target in enumerate(targets)
            if not (target.diverged or has_non_finite_values(target.params))
            for member in target.members
        }
        request = ClientRequest(
            "count",
            tuple(target.params for target in targets),
            (True,) * len(targets),
            (),
            {handle: ClientContext(given=place) for handle, place in of.items()},
            paths=tuple(streams(target.cluster).path for target in targets),
        )
        asked = tuple(m for t in targets for m in t.members if m.handle in of)
        found: list[list[ClientResponse]] = [[] for _ in targets]
        for each in send(request, asked) if asked else ():
            found[of[each.handle]].append(each)
        return [_combined(each) for each in found]

    return count


def _combined(responses: Sequence[ClientResponse]) -> tuple[ndarray, ndarray]:
    given = [
        (each.members, each.held_out)
        for each in responses
        if each.members is not None and each.held_out is not None
    ]
    if len(given) < FEWEST_REPORTING:
        given = []
    return combined_counts([m for m, _ in given], [h for _, h in given])
