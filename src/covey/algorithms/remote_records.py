"""Remote clients' records: what a server is sent of them where heads are solved."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from jaxtyping import Float64
from torch import Tensor

from covey.algorithms.local_clients import Backend
from covey.algorithms.remote import (
    ClientContext,
    ClientRequest,
    ClientResponse,
    RemoteClients,
    RequestType,
    Send,
    play_sums,
)
from covey.algorithms.selection import SelectionConfig, SelectionResult, TrainAtOnce
from covey.algorithms.state import Cohort, ServerState
from covey.algorithms.sums import Moves, Summed, sums_of_numbers
from covey.base.errors import ConfigError
from covey.base.events import AnswerRefused, Event, SumGivenUp
from covey.base.names import Handle
from covey.base.rng import Streams
from covey.data.examples import Client
from covey.engine.fixed_features import params_of
from covey.heads.state import ClusterSums
from covey.heads.sums import EXACT, WEIGHT_STEPS, Sums, diagonal_of, fault_of_total
from covey.secure_sums.messages import Terms

TOO_LARGE = "its sums must leave those over all clients below 2^53 steps"


@dataclass(frozen=True, slots=True)
class RemoteRecords:
    """Records that stay with their clients, who send their means and their sums.

    Attributes:
        send: how they are asked.
        classes: how many outputs a head has.
        fingerprint: of the features, which clients compare with their own.
        held: what was sent for this round, of records of weight 1.
        lacking: who was asked for that, and sent nothing that is in order.
        facts: what is to be told of it.
        groups: sums over several clients that came under masks.
        summed: whose these are; None: masks are not asked of them.
    """

    send: Send
    classes: int
    fingerprint: str = ""
    held: Mapping[Handle, Sums] = field(default_factory=dict[Handle, Sums])
    lacking: frozenset[Handle] = frozenset()
    facts: tuple[Event, ...] = ()
    groups: Mapping[frozenset[Handle], Sums] = field(default_factory=dict[frozenset[Handle], Sums])
    summed: Summed | None = None

    @property
    def noise(self) -> None:
        """Nothing."""
        return None

    @property
    def are_apart(self) -> bool:
        """They are on machines of their own."""
        return True

    def means(
        self, cohort: Cohort, d: int, round_index: int
    ) -> Mapping[Handle, Float64[Tensor, " d"]]:
        """Ask clients for the mean of their features."""
        contexts = {client.handle: ClientContext() for client in cohort}
        found = self.send(self._request("mean", contexts, d, round_index), cohort)
        return {each.handle: each.mean for each in found if each.mean is not None}

    def ready(
        self, known: ClusterSums, cohort: Cohort, d: int, round_index: int
    ) -> "RemoteRecords":
        """Ask clients for their sums, all of them at once.

        Sums that would make those over all clients too large to be exact are refused, and
        so are, where they are to be taken off, others than were sent before.
        """
        contexts = {
            client.handle: ClientContext(digest=known.digests.get(client.handle, ""))
            for client in cohort
        }
        request = self._request("sum", contexts, d, round_index)
        found = self.send(request, cohort) if cohort else ()
        largest = _largest(known.sums)
        held, facts = dict[Handle, Sums](), list[Event]()
        for each in found:
            if each.sums is None:
                continue
            new = each.handle not in known.counted  # others are in the total already
            own = _largest([each.sums]) * WEIGHT_STEPS
            grown = largest + own * new
            if grown >= EXACT:
                facts.append(AnswerRefused(each.handle, TOO_LARGE))
            else:
                held[each.handle], largest = each.sums, grown
        lacking = frozenset(c.handle for c in cohort).difference(held)
        return replace(self, held=held, lacking=lacking, facts=tuple(facts))

    def under_masks(
        self, known: ClusterSums, cohort: Cohort, moves: Moves, d: int, round_index: int
    ) -> "RemoteRecords":
        """Let clients add up their sums under masks, all groups at the same time.

        A sum that cannot be one over records, or would make the one over all clients too
        large to be exact, is thrown away: which of its clients lied, nobody sees.
        """
        request = self._request("masked", {}, d, round_index)
        length = d * (d + 1) // 2 + d * self.classes
        by_handle = {client.handle: client for client in cohort}
        asked = [
            tuple(by_handle[h] for h in sorted(group, key=lambda h: by_handle[h].name))
            for group in moves.groups()
        ]
        played = play_sums(
            self.send,
            lambda _: request,
            asked,
            lambda: Terms.new(length, moves.minimum),
            moves.groups,
        )
        facts = [fact for each in played for fact in each.facts()]
        largest = _largest(known.sums)
        groups, shown = dict[frozenset[Handle], Sums](), list[frozenset[Handle]]()
        for each in played:
            if each.values is None:
                shown += [each.shown] if each.shown else []
                continue
            found = sums_of_numbers(each.values, (d, self.classes))
            new = not each.shown <= known.counted.keys()
            grown = largest + _largest([found]) * WEIGHT_STEPS * new
            if fault := fault_of_total(found) or TOO_LARGE * (grown >= EXACT):
                facts.append(SumGivenUp(tuple(sorted(each.shown)), fault))
                shown.append(each.shown)
            else:
                groups[each.shown], largest = found, grown
        summed = Summed(tuple(sorted(groups, key=min)), tuple(shown))
        lacking = frozenset(c.handle for each in asked for c in each) - summed.clients
        return replace(self, groups=groups, summed=summed, lacking=lacking, facts=tuple(facts))

    def sums(self, clients: Iterable[tuple[Client, int]], d: int) -> Sums:
        """Return the sums over these clients, who sent theirs, each at its weight."""
        weights = {client.handle: weight for client, weight in clients if weight}
        found = Sums.nothing(d, self.classes)
        for group, total in self.groups.items():
            if group <= weights.keys():
                (weight,) = {weights.pop(handle) for handle in group}
                found += total.times(weight)
        for handle, weight in weights.items():
            found += self.held[handle].times(weight)
        return found

    def noted(self, sums: ClusterSums) -> ClusterSums:
        """Return the sums with the digest of what each client in them sent."""
        sent = {handle: each.digest() for handle, each in self.held.items()}
        known = {**sums.digests, **sent}
        digests = {h: digest for h, digest in known.items() if h in sums.counted}
        return sums.model_copy(update={"digests": digests})

    def judging(self, backend: Backend, known: ClusterSums | None, *, last: bool) -> Backend:
        """Return how clients choose by what they are sent, and train nothing."""
        if not isinstance(backend, RemoteClients):
            raise ConfigError(
                f"Remote clients choose through RemoteClients, found "
                f"{type(backend).__name__}. Leave the steps' backend as it is."
            )
        return RemoteJudges(backend.send, backend.recipe, self.fingerprint, known, last)

    def _request(
        self, task: RequestType, contexts: Mapping[Handle, ClientContext], d: int, t: int
    ) -> ClientRequest:
        path, features = ("round", t), self.fingerprint
        return ClientRequest(
            task, (), (), path, contexts, round_index=t, width=d, features=features
        )


def _largest(sums: Iterable[Sums]) -> float:
    """Return what no entry of these sums together is above."""
    diagonals = (each.gram[diagonal_of(len(each.targets))] for each in sums)
    return sum((float(each.max()) for each in diagonals), 0.0)


@dataclass(frozen=True, slots=True)
class RemoteJudges(RemoteClients):
    """Remote clients who compare heads, and take one.

    Attributes:
        fingerprint: of the features.
        known: the sums of which each client's share is left out; None: of none.
        last: whether the run ends with it.
    """

    fingerprint: str
    known: ClusterSums | None
    last: bool

    def choose(
        self,
        selection: SelectionConfig,
        state: ServerState,
        cohort: Cohort,
        streams: Streams,
        training: TrainAtOnce | None = None,
    ) -> SelectionResult:
        """Let every client take a head by what it would be without the client."""
        del training
        asked = RemoteClients(self._send_heads, self.recipe)
        return asked.choose(selection, state, cohort, streams)

    def _send_heads(self, request: ClientRequest, cohort: Cohort) -> tuple[ClientResponse, ...]:
        """Send heads, and what tells a client what they would be without it."""
        task: RequestType = "settle" if self.last else "compare"
        request = replace(request, task=task, features=self.fingerprint)
        if self.known is None:
            return self.send(request, cohort)
        known = self.known
        stakes = {c.handle: known.stake(c.handle) for c in cohort}
        met = {
            j
            for weight, shares in stakes.values()
            for j, share in enumerate(shares)
            if weight * share
        }
        heads = [known.head(j) for j in range(len(known.gram))]
        contexts = {
            handle: replace(each, weight=stakes[handle][0], shares=stakes[handle][1])
            for handle, each in request.contexts.items()
        }
        request = replace(
            request,
            models=tuple(params_of(head.theta) for head in heads),
            roots={j: heads[j].root for j in met},
            contexts=contexts,
        )
        return self.send(request, cohort)
