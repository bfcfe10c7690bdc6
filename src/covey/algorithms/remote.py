"""Remote clients: what one message asks of them, and what they answer, also under masks.

A simulation holds everybody's examples and plays both sides. In a federation the server
holds none: it sends models, and each client measures, chooses and trains by itself. What a
client accepts, what it has found out and how it draws stay on its side; the server learns
the cluster, the update and, where the method needs them, counts.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Never

import numpy as np
from jaxtyping import Float64, Int, Int64
from numpy import ndarray
from torch import Tensor

from covey.aggregation.base import ClientUpdate
from covey.aggregation.mean import mean_of_numbers
from covey.algorithms.local_clients import Train
from covey.algorithms.selection import (
    UNASSIGNED,
    SelectionConfig,
    SelectionResult,
    TrainAtOnce,
    choice_events,
)
from covey.algorithms.state import NO_INPUTS, ClientMemory, Cohort, ObjectiveInputs, ServerState
from covey.base.errors import ConfigError
from covey.base.events import AnswerRefused, Event, SumGivenUp
from covey.base.figure import RiskEstimate
from covey.base.names import Handle, Params
from covey.base.rng import Streams
from covey.data.examples import Client
from covey.engine.recipe import Recipe
from covey.heads.sums import Sums
from covey.membership.estimators import (
    EDGES,
    FEWEST_REPORTING,
    FOLDS,
    Count,
    CountAll,
    combined_counts,
)
from covey.membership.truth import Target, has_non_finite_values
from covey.secure_sums.messages import Reason, RoundGivenUpError, SecureSum, Step, Terms
from covey.secure_sums.server import ServerRound

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
        frozen: hash of the model's parameters that do not train; "": all do.
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
    frozen: str = ""
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

    def evaluate(self, models: tuple[Params, ...], cohort: Cohort, streams: Streams) -> Never:
        """Refuse: nobody but a client knows what it measures.

        Raises:
            ConfigError: always.
        """
        del models, cohort, streams
        raise ConfigError(
            "This algorithm needs to know what every client measured, but clients are remote: "
            "they tell what they choose. Use clients.choose or clients.nearest."
        )

    def nearest(self, state: ServerState, cohort: Cohort, streams: Streams) -> Mapping[Handle, int]:
        """Ask clients which cluster's model has the lowest loss on their examples."""
        if not cohort:
            return {}
        contexts = {client.handle: ClientContext() for client in cohort}
        available = (True,) * len(state.clusters)
        request = ClientRequest("place", state.clusters, available, streams.path, contexts)
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
                given=assignment[c.handle], memory_round=inputs.memory.rounds.get(c.handle)
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

    def updates_of(self, responses: tuple[ClientResponse, ...]) -> tuple[ClientUpdate, ...]:
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


Sound = Callable[[Collection[Handle]], Collection[frozenset[Handle]]]
"""Which groups may be summed if these clients are all who sent their numbers."""


@dataclass(frozen=True, slots=True, eq=False)
class GroupSum:
    """One group of clients in a round of its own, between two messages.

    Attributes:
        cohort: who was asked first.
        letters: what is sent next, by name; empty once the round is over.
        shown: who was asked to open a sum.
        values: the sum over these, once it came.
        given_up: why none came.
    """

    cohort: Cohort
    round: ServerRound
    letters: Mapping[str, bytes]
    shown: frozenset[Handle] = frozenset()
    values: Int64[np.ndarray, " numbers"] | None = None
    given_up: str = ""

    @classmethod
    def begin(cls, cohort: Cohort, terms: Terms) -> "GroupSum":
        """Return a group of which nobody has been asked yet."""
        names = tuple(sorted(client.name for client in cohort))
        return cls(cohort, ServerRound(terms, names), dict.fromkeys(names, b""))

    @property
    def asked(self) -> dict[Handle, bytes]:
        """What is sent next, by handle."""
        letters = self.letters
        return {c.handle: letters[c.name] for c in self.cohort if c.name in letters}

    @property
    def sent(self) -> frozenset[Handle]:
        """Whose numbers came."""
        return frozenset(c.handle for c in self.cohort if c.name in self.round.masked)

    def taking(self, answers: Mapping[Handle, bytes]) -> "GroupSum":
        """Return the group with what its clients sent, or why it is refused."""
        played = self.round
        for client in self.cohort:
            if client.handle in answers:
                played = played.accept(client.name, answers[client.handle])
        return replace(self, round=played)

    def closed(self) -> "GroupSum":
        """Return the group after a step that is over, with what is sent next."""
        step = self.round.step
        try:
            after, letters = _closed(self.round)
        except RoundGivenUpError as error:
            return self.giving_up(error.reason)
        if isinstance(letters, SecureSum):
            return replace(self, round=after, letters={}, values=letters.values)
        shown = self.sent if step == "masked" else self.shown
        return replace(self, round=after, letters=letters, shown=shown)

    def giving_up(self, reason: Reason) -> "GroupSum":
        """Return the group without a sum."""
        return replace(self, letters={}, given_up=reason.value)

    def facts(self) -> Iterable[Event]:
        """Return what is to be told: each refusal once, and a sum that did not come."""
        handles = {client.name: client.handle for client in self.cohort}
        refused = ((r.sender, r.reason.value) for r in self.round.refused)
        for sender, reason in dict.fromkeys(refused):
            yield AnswerRefused(handles[sender], reason)
        if self.given_up:
            yield SumGivenUp(tuple(sorted(handles.values())), self.given_up)


def play_sums(
    send: Send,
    request: Callable[[Step], ClientRequest],
    groups: Sequence[Cohort],
    terms: Callable[[], Terms],
    sound: Sound,
) -> tuple[GroupSum, ...]:
    """Return the sums of some groups, all of which take every step at the same time.

    Each round has a number that no other has: a server that was killed begins others, and
    what clients sent in the first ones opens nothing.

    Args:
        send: how clients are asked.
        request: what is sent to all of them in a step, beside the protocol's own; its
            `sums` say what is added up.
        groups: whose sums are needed, each group's together.
        terms: makes those of a new round; all are alike but in their numbers.
        sound: which groups may be summed of those who are left.
    """
    running = [GroupSum.begin(cohort, terms()) for cohort in groups]
    while waited_for := [each for each in running if each.letters]:
        step = waited_for[0].round.step
        answers = _asked(send, request(step), waited_for)
        running = [each.taking(answers) if each.letters else each for each in running]
        if step == "masked":  # groups of which too few are left, or would be left behind
            may = sound(frozenset[Handle]().union(*(g.sent for g in running if g.letters)))
            few = Reason.TOO_FEW_CLIENTS
            running = [g.giving_up(few) if g.letters and g.sent not in may else g for g in running]
        running = [each.closed() if each.letters else each for each in running]
    return tuple(running)


def _asked(
    send: Send, request: ClientRequest, groups: Sequence[GroupSum]
) -> Mapping[Handle, bytes]:
    """Ask all groups at once; return what came."""
    letters = {handle: x for each in groups for handle, x in each.asked.items()}
    sessions = {
        client.handle: each.round.terms.session.hex() for each in groups for client in each.cohort
    }
    told = request.contexts
    cohort = tuple(c for each in groups for c in each.cohort if c.handle in letters)
    terms = groups[0].round.terms
    of = request.sums.of if request.sums else "sums"
    asked = replace(
        request,
        task="masked",
        contexts={h: replace(told.get(h, ClientContext()), session=sessions[h]) for h in letters},
        sums=SumStep(groups[0].round.step, terms.length, of),
        letters=letters,
    )
    return {each.handle: each.letter for each in send(asked, cohort)}


def _closed(played: ServerRound) -> tuple[ServerRound, Mapping[str, bytes] | SecureSum]:
    """Return a round after its step, with what is sent to whom, or with its sum."""
    match played.step:
        case "keys":
            after, roster = played.close_keys()
            return after, dict.fromkeys(played.roster.names, roster)
        case "shares":
            return played.close_shares()
        case "masked":
            after, survivors = played.close_masked()
            return after, dict.fromkeys(played.survivors, survivors)
        case "agreements":
            after, signed = played.close_agreements()
            who = (each.sender for each in played.agreements)
            return after, dict.fromkeys(who, signed)
        case _:
            return played.close()


SHAPE = 2, FOLDS, len(EDGES) + 1
"""Of the counts of members and of the others."""


def masked_counts(send: Send, min_cohort: int) -> Count:
    """Return how remote members count together; fewer than so many count nothing.

    Args:
        send: how clients are asked.
        min_cohort: the fewest clients that a sum may be over.
    """

    def count(target: Target, streams: Streams) -> tuple[ndarray, ndarray]:
        length = int(np.prod(SHAPE))
        counts = SumStep("keys", length, "counts")
        bare = ClientRequest("masked", (), (), streams.path, {}, sums=counts)
        whole = replace(bare, models=(target.params,), available=(True,))
        fewest = max(min_cohort, FEWEST_REPORTING)
        groups = [target.members] if len(target.members) >= fewest else []
        played = play_sums(
            send,
            lambda step: whole if step == "masked" else bare,
            groups,
            lambda: Terms.new(length, min_cohort),
            lambda there: [frozenset(there)] * (len(there) >= fewest),
        )
        values = played[0].values if played else None
        if values is None or (values < 0).any():
            values = np.zeros(SHAPE, dtype=np.int64)
        inside, outside = values.reshape(SHAPE)
        return inside, outside

    return count


def masked_training(send: Send, recipe: Recipe, min_cohort: int) -> Train:
    """Return the step in which remote clients train, and send a mean together.

    Every client whose update is in the mean of its cluster yields that mean. Fewer than
    so many in a cluster train nothing.

    Args:
        send: how clients are asked.
        recipe: how they train.
        min_cohort: the fewest clients that a sum may be over.
    """

    def train(
        clusters: tuple[Params, ...],
        cohort: Cohort,
        assignment: Mapping[Handle, int],
        streams: Streams,
        inputs: ObjectiveInputs = NO_INPUTS,
    ) -> Iterator[ClientUpdate]:
        shapes = {name: value.shape for name, value in clusters[0].items()}
        length = 1 + sum(shape.numel() for shape in shapes.values())
        updates = SumStep("keys", length, "updates")
        bare = ClientRequest("masked", (), (), streams.path, {}, recipe, sums=updates)
        whole = replace(
            bare,
            models=clusters,
            available=(True,) * len(clusters),
            contexts={
                c.handle: ClientContext(
                    given=assignment[c.handle], memory_round=inputs.memory.rounds.get(c.handle)
                )
                for c in cohort
            },
            round_index=inputs.round_index,
            broadcast=inputs.broadcast,
        )
        groups = _per_cluster(cohort, assignment, min_cohort)
        played = play_sums(
            send,
            lambda step: whole if step == "masked" else bare,
            groups,
            lambda: Terms.new(length, min_cohort),
            lambda there: _per_group(groups, there, min_cohort),
        )
        kept = {} if recipe.keeps_memory else None
        for each in played:
            if each.values is None or each.values[0] <= 0:
                continue
            mean = mean_of_numbers(each.values, shapes)
            for client in each.cohort:
                if client.handle in each.shown:
                    j = assignment[client.handle]
                    yield ClientUpdate(client.handle, j, mean, 1.0, kept)

    return train


def _per_cluster(cohort: Cohort, assignment: Mapping[Handle, int], min_cohort: int) -> list[Cohort]:
    found: dict[int, list[Client]] = defaultdict(list)
    for client in cohort:
        found[assignment[client.handle]].append(client)
    return [tuple(found[j]) for j in sorted(found) if len(found[j]) >= min_cohort]


def _per_group(
    groups: Sequence[Cohort], there: Collection[Handle], min_cohort: int
) -> list[frozenset[Handle]]:
    left = (frozenset(c.handle for c in group) & frozenset(there) for group in groups)
    return [each for each in left if len(each) >= min_cohort]


def numbers_of_counts(
    inside: Int64[ndarray, "folds bins"], outside: Int64[ndarray, "folds bins"]
) -> Int64[ndarray, " numbers"]:
    """Return a client's counts as the numbers that are added up."""
    return np.concatenate([inside.ravel(), outside.ravel()]).astype(np.int64)
