"""Remote clients: each is sent a request, and answers for itself; also under masks."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Never

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
from covey.algorithms.federation import longer
from covey.algorithms.group_sums import Sound, play_sums
from covey.algorithms.selection import UNASSIGNED, SelectionConfig, SelectionResult, choice_events
from covey.algorithms.state import NO_INPUTS, ClientMemory, Cohort, ObjectiveInputs, ServerState
from covey.algorithms.sum_cohorts import Summed, sums_of_numbers
from covey.base.errors import ConfigError
from covey.base.events import AnswerRefused, Event, SumGivenUp
from covey.base.names import Handle, Params
from covey.base.rng import Streams
from covey.data.examples import Client
from covey.engine.fixed_features import params_of
from covey.engine.recipe import Recipe
from covey.membership.estimators import (
    FEWEST_REPORTING,
    Count,
    CountAll,
    combined_counts,
    count_of_counts,
    counts_of_numbers,
)
from covey.membership.truth import Target, has_non_finite_values
from covey.models.ridge_state import ClusterSums
from covey.models.ridge_sums import EXACT, Sums, diagonal_of, fault_of_total
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
        classes: how many outputs a head has.
        fingerprint: of the features, which clients compare with their own.
        held: the sums that were sent for this round.
        lacking: whose answer to such a request is missing or refused.
        facts: what is to be recorded of it.
        groups: sums over several clients that came under masks.
        summed: whose these are; None: these clients use no masks.
        chooses_heads: how clients choose among heads, of which they train none; None: among
            models, which they train at once.
        known: the sums from which they compare heads that never met them; None: they
            compare the models as they are.
    """

    send: Send
    recipe: Recipe
    min_cohort: int = 0
    shares: NoiseShares | None = None
    classes: int = 0
    fingerprint: str = ""
    held: Mapping[Handle, Sums] = field(default_factory=dict[Handle, Sums])
    lacking: frozenset[Handle] = frozenset()
    facts: tuple[Event, ...] = ()
    groups: Mapping[frozenset[Handle], Sums] = field(default_factory=dict[frozenset[Handle], Sums])
    summed: Summed | None = None
    chooses_heads: Literal["compare", "reassign"] | None = None
    known: ClusterSums | None = None

    @property
    def is_apart(self) -> bool:
        """They are on machines of their own, and may give no answer."""
        return True

    def training_longer(self) -> "Remote":
        """Return the same clients, who train until it shows how they differ."""
        return replace(self, recipe=longer(self.recipe))

    def evaluate(self, models: Models, cohort: Cohort, streams: Streams) -> Never:
        """Refuse: only the client itself has what it measures.

        Raises:
            ConfigError: always.
        """
        del models, cohort, streams
        raise ConfigError(
            "This algorithm needs to know what every client measured, but clients are remote: "
            "they report what they choose. Use clients.choose or clients.nearest."
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
        return {each.handle: each.cluster for each in self.send(request, cohort)}

    def choose(
        self,
        selection: SelectionConfig,
        state: ServerState,
        cohort: Cohort,
        streams: Streams,
        inputs: ObjectiveInputs | None = None,
    ) -> SelectionResult:
        """Let clients choose; they train at once, in the same message, if they are to."""
        trains = inputs is not None and self.chooses_heads is None
        inputs = inputs if inputs and trains else NO_INPUTS
        contexts = {
            c.handle: ClientContext(
                assigned=inputs.assigned.get(c.handle),
                risks=state.known_risks(c.handle),
                current=state.assignment.get(c.handle, UNASSIGNED),
                memory_round=state.kept(ClientMemory).rounds.get(c.handle),
            )
            for c in cohort
        }
        request = ClientRequest(
            "choose" if trains else self.chooses_heads or "reassign",
            state.clusters,
            state.available(),
            streams.path,
            contexts,
            self.recipe.numbers,
            state.round_index,
            inputs.broadcast,
            features=self.fingerprint if self.chooses_heads else "",
        )
        if self.known is not None:
            request = _with_heads(request, self.known)
        responses = self.send(request, cohort)
        clusters = {each.handle: each.cluster for each in responses}
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
        request = ClientRequest(
            "train",
            models,
            (True,) * len(models),
            streams.path,
            contexts,
            self.recipe.numbers,
            inputs.round_index,
            inputs.broadcast,
        )
        if self.min_cohort:
            yield from self._mean_under_masks(request, cohort)
        else:
            yield from self._updates_of(self.send(request, cohort))

    def _updates_of(self, responses: tuple[ClientResponse, ...]) -> tuple[ClientUpdate, ...]:
        return tuple(
            ClientUpdate(each.handle, each.cluster, each.update, each.weight, self._kept)
            for each in responses
            if each.update is not None
        )

    @property
    def _kept(self) -> Mapping[str, Params] | None:
        """What is known here of what clients keep: that they do."""
        return {} if self.recipe.keeps_memory else None

    def _mean_under_masks(self, request: ClientRequest, cohort: Cohort) -> Iterator[ClientUpdate]:
        least, (model,) = self.min_cohort, request.models
        groups, enough = _if_enough(cohort, least), _all_if(least)
        length = count_of_numbers(model)
        for each in play_sums(self.send, request, ("updates", length), groups, least, enough):
            if each.values is None or each.values[0] <= 0:
                continue
            mean = mean_of_numbers(each.values, model, self.shares)
            for client in each.cohort:
                if client.handle in each.shown:
                    yield ClientUpdate(client.handle, 0, mean, 1.0, self._kept)

    def means(
        self, cohort: Cohort, d: int, round_index: int
    ) -> Mapping[Handle, Float64[Tensor, " d"]]:
        """Ask clients for the mean of their features."""
        contexts = {client.handle: ClientContext() for client in cohort}
        responses = self.send(self._request("mean", contexts, d, round_index), cohort)
        return {each.handle: each.mean for each in responses if each.mean is not None}

    def ready(self, known: ClusterSums, cohort: Cohort, d: int, round_index: int) -> "Remote":
        """Ask clients for their sums, all of them at once.

        Sums that would make those over all clients too large to be exact are refused, and
        so are, where they are to be taken off, others than were sent before.
        """
        contexts = {
            client.handle: ClientContext(digest=known.digests.get(client.handle, ""))
            for client in cohort
        }
        request = self._request("sum", contexts, d, round_index)
        responses = self.send(request, cohort) if cohort else ()
        largest = _largest(known.sums)
        held, facts = dict[Handle, Sums](), list[Event]()
        for each in responses:
            if each.sums is None:
                continue
            new = each.handle not in known.counted  # others are in the total already
            grown = largest + _largest([each.sums]) * new
            if grown >= EXACT:
                facts.append(AnswerRefused(each.handle, TOO_LARGE))
            else:
                held[each.handle], largest = each.sums, grown
        lacking = frozenset(c.handle for c in cohort).difference(held)
        return replace(self, held=held, lacking=lacking, facts=tuple(facts))

    def under_masks(
        self, known: ClusterSums, cohort: Cohort, may: Sound, minimum: int, d: int, round_index: int
    ) -> "Remote":
        """Let clients add up their sums under masks, all groups at the same time.

        A sum that cannot be one over records, or would make the one over all clients too
        large to be exact, is thrown away: the server cannot see which of its clients lied.
        """
        request = self._request("masked", {}, d, round_index)
        by_handle = {client.handle: client for client in cohort}
        cohorts = [
            tuple(by_handle[h] for h in sorted(group, key=lambda h: by_handle[h].name))
            for group in may(by_handle.keys())
        ]
        length = d * (d + 1) // 2 + d * self.classes
        played = play_sums(self.send, request, ("sums", length), cohorts, minimum, may)
        facts = [fact for each in played for fact in each.facts()]
        largest = _largest(known.sums)
        groups, shown = dict[frozenset[Handle], Sums](), list[frozenset[Handle]]()
        for each in played:
            if each.values is None:
                shown += [each.shown] if each.shown else []
                continue
            total = sums_of_numbers(each.values, (d, self.classes))
            new = not each.shown <= known.counted.keys()
            grown = largest + _largest([total]) * new
            if fault := fault_of_total(total) or TOO_LARGE * (grown >= EXACT):
                facts.append(SumGivenUp(tuple(sorted(each.shown)), fault))
                shown.append(each.shown)
            else:
                groups[each.shown], largest = total, grown
        summed = Summed(tuple(sorted(groups, key=min)), tuple(shown))
        lacking = frozenset(c.handle for each in cohorts for c in each) - summed.clients
        return replace(self, groups=groups, summed=summed, lacking=lacking, facts=tuple(facts))

    def sums(self, clients: Iterable[Client], d: int) -> Sums:
        """Return the sums over these clients, who sent theirs."""
        alone, result = {client.handle for client in clients}, Sums.nothing(d, self.classes)
        for group, total in self.groups.items():
            if group <= alone:
                alone -= group
                result += total
        for handle in alone:
            result += self.held[handle]
        return result

    def with_digests(self, sums: ClusterSums) -> ClusterSums:
        """Return the sums with the digest of what each client in them sent."""
        sent = {handle: each.digest() for handle, each in self.held.items()}
        known = {**sums.digests, **sent}
        digests = {h: digest for h, digest in known.items() if h in sums.counted}
        return sums.model_copy(update={"digests": digests})

    def comparing(self, known: ClusterSums | None, *, last: bool) -> "Remote":
        """Return the same clients, who choose by the heads that they are sent, and train none."""
        return replace(self, chooses_heads="reassign" if last else "compare", known=known)

    def _request(
        self, task: RequestType, contexts: Mapping[Handle, ClientContext], d: int, t: int
    ) -> ClientRequest:
        path, features = ("round", t), self.fingerprint
        return ClientRequest(
            task, path=path, contexts=contexts, round_index=t, width=d, features=features
        )


def _if_enough(cohort: Cohort, least: int) -> tuple[Cohort, ...]:
    """Return the one group that is summed; none where it is too small."""
    return (cohort,) if len(cohort) >= least else ()


def _all_if(least: int) -> Sound:
    """Return the rule by which all who are left are summed, or nobody."""
    return lambda there: [frozenset(there)] * (len(there) >= least)


def _largest(sums: Iterable[Sums]) -> float:
    """Return what no entry of these sums together is above."""
    diagonals = (each.gram[diagonal_of(len(each.targets))] for each in sums)
    return sum((float(each.max()) for each in diagonals), 0.0)


def _with_heads(request: ClientRequest, known: ClusterSums) -> ClientRequest:
    """Return a request with heads, and with what a client needs to compute them without itself."""
    shares = {handle: known.shares(handle) for handle in request.contexts}
    met = {j for own in shares.values() for j, share in enumerate(own) if share}
    heads = [known.head(j) for j in range(len(known.gram))]
    contexts = {
        handle: replace(each, shares=shares[handle]) for handle, each in request.contexts.items()
    }
    return replace(
        request,
        models=tuple(params_of(head.theta) for head in heads),
        roots={j: heads[j].root for j in met},
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
        for each in send(request, members) if members else ():
            responses[of[each.handle]].append(each)
        return [_combined(each) for each in responses]

    return count


def _combined(responses: Sequence[ClientResponse]) -> tuple[ndarray, ndarray]:
    counts = [
        (each.members, each.held_out)
        for each in responses
        if each.members is not None and each.held_out is not None
    ]
    if len(counts) < FEWEST_REPORTING:
        counts = []
    return combined_counts([m for m, _ in counts], [h for _, h in counts])


def masked_counts(send: Send, min_cohort: int, shares: NoiseShares | None = None) -> Count:
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
        groups, enough = _if_enough(target.members, fewest), _all_if(fewest)
        length = count_of_counts(shares)
        added = play_sums(send, request, ("counts", length), groups, min_cohort, enough)
        values = added[0].values if added else None
        if values is None or (shares is None and (values < 0).any()):
            return combined_counts([], [])
        return counts_of_numbers(values, shares)

    return count
