"""Remote clients: each is sent a request, and answers for itself; also under masks."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Never

from jaxtyping import Float64
from numpy import ndarray
from torch import Tensor

from covey.aggregation.base import ClientUpdate
from covey.aggregation.mean import count_of_numbers, mean_of_numbers
from covey.aggregation.server import Models
from covey.algorithms.client_requests import (
    ClientContext,
    ClientRequest,
    ClientResponse,
    RequestType,
    Send,
)
from covey.algorithms.clients import Comparison, SumsAnswer
from covey.algorithms.group_sums import play_sums
from covey.algorithms.selection import UNASSIGNED, SelectionConfig, SelectionResult, choice_events
from covey.algorithms.state import NO_INPUTS, ClientMemory, Cohort, ObjectiveInputs, ServerState
from covey.base.errors import ConfigError
from covey.base.events import AnswerRefused, Event, SumGivenUp
from covey.base.names import Handle, Params
from covey.base.rng import Streams
from covey.engine.recipe import Recipe
from covey.membership.estimators import (
    FEWEST_REPORTING,
    CountAll,
    CountFunction,
    combined_counts,
    count_of_counts,
    counts_of_numbers,
)
from covey.membership.truth import Target, has_non_finite_values
from covey.ridge.head import ClusterSums, shape_of
from covey.ridge.sums import EXACT, SumCohorts, Sums, fault_of
from covey.secure_sums.noise import NoiseShares

TOO_LARGE = "its sums must leave those over all clients below 2^53 steps"


@dataclass(frozen=True, slots=True, eq=False)
class Remote:
    """Clients on machines of their own.

    Attributes:
        send: sends them a request.
        recipe: how they train.
        min_cohort: the fewest clients that a mean of updates under masks is over; 0: every
            client sends its own update.
        shares: the noise that every client adds to its update under masks; None: none.
        fingerprint: of the features, which clients compare with their own.
    """

    is_remote = True

    send: Send
    recipe: Recipe
    min_cohort: int = 0
    shares: NoiseShares | None = None
    fingerprint: str = ""

    def evaluate(self, models: Models, cohort: Cohort, streams: Streams) -> Never:
        """Refuse: only the client itself has what it measures.

        Raises:
            ConfigError: always.
        """
        del models, cohort, streams
        raise ConfigError(
            "An algorithm of remote clients must not need what each measured, as they report what "
            "they choose, found one that does: use clients.choose or clients.nearest."
        )

    def nearest(self, state: ServerState, cohort: Cohort, streams: Streams) -> Mapping[Handle, int]:
        """Ask clients which cluster's model has the lowest loss on their examples."""
        if not cohort:
            return {}
        contexts = {client.handle: ClientContext() for client in cohort}
        available = (True,) * len(state.clusters)
        request = ClientRequest(
            *("place", state.clusters, available, streams.path, contexts),
            round_index=state.round_index,
        )
        return {response.handle: response.cluster for response in self.send(request, cohort)}

    def choose(
        self,
        selection: SelectionConfig,
        state: ServerState,
        cohort: Cohort,
        streams: Streams,
        inputs: ObjectiveInputs | Comparison | None = None,
    ) -> SelectionResult:
        """Let clients choose; they train at once, in the same message, if they are to."""
        heads = inputs if isinstance(inputs, Comparison) else None
        trains = isinstance(inputs, ObjectiveInputs)
        inputs = inputs if isinstance(inputs, ObjectiveInputs) else NO_INPUTS
        contexts = {
            c.handle: ClientContext(
                assigned=inputs.assigned.get(c.handle),
                risks=state.known_risks(c.handle),
                current=state.assignment.get(c.handle, UNASSIGNED),
                memory_round=state.get_state(ClientMemory).rounds.get(c.handle),
            )
            for c in cohort
        }
        request = ClientRequest(
            "choose" if trains else "reassign" if heads is None or heads.last else "compare",
            state.clusters,
            state.available(),
            streams.path,
            contexts,
            self.recipe.numbers,
            state.round_index,
            inputs.broadcast,
            features=self.fingerprint if heads else "",
        )
        if heads and heads.sums:
            request = _with_heads(request, heads.sums)
        responses = self.send(request, cohort)
        clusters = {response.handle: response.cluster for response in responses}
        responding = tuple(client for client in cohort if client.handle in clusters)
        events = choice_events(selection.epsilon, responding)
        return SelectionResult(state, clusters, events, self._updates_of(responses))

    def train(
        self,
        models: Models,
        cohort: Cohort,
        assignment: Mapping[Handle, int],
        streams: Streams,
        inputs: ObjectiveInputs = NO_INPUTS,
    ) -> Iterator[ClientUpdate]:
        """Let every client train from its cluster's model; yield what comes back.

        Under masks every client whose update is in the mean of its cluster yields that mean;
        a cluster with fewer than `min_cohort` trains nothing.
        """
        contexts = {
            c.handle: ClientContext(
                assigned=assignment[c.handle], memory_round=inputs.memory.rounds.get(c.handle)
            )
            for c in cohort
        }
        numbers = self.recipe.numbers
        request = ClientRequest(
            "train",
            models,
            (True,) * len(models),
            streams.path,
            contexts,
            replace(numbers, least_steps=inputs.least_steps or numbers.least_steps),
            inputs.round_index,
            inputs.broadcast,
        )
        if self.min_cohort:
            yield from self._mean_under_masks(request, cohort)
        else:
            yield from self._updates_of(self.send(request, cohort))

    def _updates_of(self, responses: tuple[ClientResponse, ...]) -> tuple[ClientUpdate, ...]:
        return tuple(
            ClientUpdate(
                response.handle, response.cluster, response.update, response.weight, self._kept
            )
            for response in responses
            if response.update is not None
        )

    @property
    def _kept(self) -> Mapping[str, Params] | None:
        """What is known here of what clients keep: that they do."""
        return {} if self.recipe.keeps_memory else None

    def _mean_under_masks(self, request: ClientRequest, cohort: Cohort) -> Iterator[ClientUpdate]:
        least, (model,) = self.min_cohort, request.models
        summed = "updates", count_of_numbers(model)
        for cluster_sums in play_sums(self.send, request, summed, cohort, least):
            if cluster_sums.values is None or cluster_sums.values[0] <= 0:
                continue
            mean = mean_of_numbers(cluster_sums.values, model, self.shares)
            for client in cluster_sums.cohort:
                if client.handle in cluster_sums.shown:
                    yield ClientUpdate(client.handle, 0, mean, 1.0, self._kept)

    def means(self, state: ServerState, cohort: Cohort) -> Mapping[Handle, Float64[Tensor, " d"]]:
        """Ask clients for the mean of their features."""
        contexts = {client.handle: ClientContext() for client in cohort}
        responses = self.send(self._of_features("mean", state, contexts), cohort)
        return {
            response.handle: response.mean for response in responses if response.mean is not None
        }

    def sums(self, state: ServerState, groups: Sequence[Cohort], minimum: int = 0) -> SumsAnswer:
        """Ask clients for their sums, all of them at once.

        Sums that would make those over all clients too large to be exact are refused, and
        so are, where they are to be taken off, others than were sent before.
        """
        if minimum:
            (cohort,) = groups
            return self._sums_under_masks(state, cohort, minimum)
        known, held, events = state.get_state(ClusterSums), dict[Handle, Sums](), list[Event]()
        clients = {client.handle: client for group in groups for client in group}
        cohort = tuple(clients[handle] for handle in sorted(clients))
        contexts = {
            handle: ClientContext(digest=known.digests.get(handle, "")) for handle in clients
        }
        request = self._of_features("sum", state, contexts)
        largest = _largest(known)
        for response in self.send(request, cohort) if cohort else ():
            if response.sums is None:
                continue
            new = response.handle not in known.counted  # others are in the total already
            grown = largest + response.sums.largest * new
            if grown >= EXACT:
                events.append(AnswerRefused(response.handle, TOO_LARGE))
            else:
                held[response.handle], largest = response.sums, grown
        nothing = Sums.nothing(*shape_of(state.clusters[0]))
        totals = (sum((held[c.handle] for c in g if c.handle in held), nothing) for g in groups)
        digests = {handle: sums.digest() for handle, sums in held.items()}
        missing = frozenset(clients.keys() - held.keys())
        return SumsAnswer(tuple(totals), missing, tuple(events), digests=digests)

    def _sums_under_masks(self, state: ServerState, cohort: Cohort, minimum: int) -> SumsAnswer:
        """Let clients add up their sums under masks, all groups at the same time.

        A sum that cannot be one over records, or would make the one over all clients too
        large to be exact, is thrown away: the server cannot see which of its clients lied.
        To clients of a sum that was to be opened and did not come it is released, so they are
        summed together from then on.
        """
        known, (d, classes) = state.get_state(ClusterSums), shape_of(state.clusters[0])
        cohorts, present = state.get_state(SumCohorts), {client.handle: client for client in cohort}
        request = self._of_features("masked", state, {})
        events = list[Event](cohorts.waiting(present, minimum))
        total, largest = Sums.nothing(d, classes), _largest(known)
        task = "sums", len(total.numbers())
        summed, lost = list[frozenset[Handle]](), list[frozenset[Handle]]()
        for cluster_sums in play_sums(self.send, request, task, cohort, minimum, cohorts):
            events += cluster_sums.facts()
            if cluster_sums.values is None:
                lost += [cluster_sums.shown] if cluster_sums.shown else []
                continue
            own = Sums.of_numbers(cluster_sums.values, d, classes)
            new = not cluster_sums.shown <= known.counted.keys()
            grown = largest + own.largest * new
            if fault := fault_of(own) or TOO_LARGE * (grown >= EXACT):
                events.append(SumGivenUp(tuple(sorted(cluster_sums.shown)), fault))
                lost.append(cluster_sums.shown)
            else:
                summed.append(cluster_sums.shown)
                total, largest = total + own, grown
        missing = frozenset(present).difference(*summed)
        together = (*sorted(summed, key=min), *lost)
        return SumsAnswer((total,), missing, tuple(events), together)

    def _of_features(
        self, task: RequestType, state: ServerState, contexts: Mapping[Handle, ClientContext]
    ) -> ClientRequest:
        t, (d, _) = state.round_index, shape_of(state.clusters[0])
        return ClientRequest(
            task,
            path=("round", t),
            contexts=contexts,
            round_index=t,
            width=d,
            features=self.fingerprint,
        )


def _largest(known: ClusterSums) -> float:
    """Return what no entry of the sums over all clusters is above."""
    return sum((sums.largest for sums in known.sums), 0.0)


def _with_heads(request: ClientRequest, sums: ClusterSums) -> ClientRequest:
    """Return a request with heads, and with what a client needs to compute them without itself."""
    contexts = {
        handle: replace(context, shares=sums.shares(handle))
        for handle, context in request.contexts.items()
    }
    met = {j for own in contexts.values() for j, share in enumerate(own.shares) if share}
    return replace(
        request,
        models=tuple(head.params for head in sums.heads),
        roots={j: sums.heads[j].root for j in met},
        contexts=contexts,
    )


def loss_counter(send: Send) -> CountAll:
    """Return how remote members count their losses for a red team.

    All get the request at once, each about the model of its own cluster. A model whose numbers
    are not finite is sent to no client.
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
            {handle: ClientContext(assigned=place) for handle, place in of.items()},
            round_index=max((target.round_index for target in targets), default=0),
            paths=tuple(streams(target.cluster).path for target in targets),
        )
        members = tuple(m for t in targets for m in t.members if m.handle in of)
        responses: list[list[ClientResponse]] = [[] for _ in targets]
        for response in send(request, members) if members else ():
            responses[of[response.handle]].append(response)
        return [_combined(response) for response in responses]

    return count


def _combined(responses: Sequence[ClientResponse]) -> tuple[ndarray, ndarray]:
    counts = [
        (response.members, response.held_out)
        for response in responses
        if response.members is not None and response.held_out is not None
    ]
    if len(counts) < FEWEST_REPORTING:
        counts = []
    return combined_counts([m for m, _ in counts], [h for _, h in counts])


def masked_counts(send: Send, min_cohort: int, shares: NoiseShares | None = None) -> CountFunction:
    """Return how remote members count together; fewer than so many count nothing.

    Args:
        send: sends clients a request.
        min_cohort: the fewest clients that a sum may be over.
        shares: the noise that they add to their counts; None: none.
    """

    def count(target: Target, streams: Streams) -> tuple[ndarray, ndarray]:
        t = target.round_index
        request = ClientRequest("masked", (target.params,), (True,), streams.path, round_index=t)
        fewest = max(min_cohort, FEWEST_REPORTING)
        summed = "counts", count_of_counts(shares)
        added = play_sums(send, request, summed, target.members, fewest)
        values = added[0].values if added else None
        if values is None or (shares is None and (values < 0).any()):
            return combined_counts([], [])
        return counts_of_numbers(values, shares)

    return count
