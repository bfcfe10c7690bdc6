"""Remote clients' records: what a server is sent of them where heads are solved."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from jaxtyping import Float64
from torch import Tensor

from covey.algorithms.backend import Backend
from covey.algorithms.base import Cohort, ServerState
from covey.algorithms.cluster_selection import (
    SelectionConfig,
    SelectionResult,
    TrainAtOnce,
)
from covey.algorithms.remote import (
    ClientContext,
    ClientRequest,
    ClientResponse,
    RemoteClients,
    RequestType,
    Send,
)
from covey.data.examples import Client
from covey.engine.fixed_features import LocalRecords, params_of
from covey.errors import ConfigError
from covey.events import AnswerRefused, Event
from covey.heads import EXACT, WEIGHT_STEPS, ClusterSums, SumNoise, Sums, diagonal_of
from covey.rng import Streams
from covey.types import Handle, Params

__all__ = ["RemoteRecords"]

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
    """

    send: Send
    classes: int
    fingerprint: str = ""
    held: Mapping[Handle, Sums] = field(default_factory=dict[Handle, Sums])
    lacking: frozenset[Handle] = frozenset()
    facts: tuple[Event, ...] = ()

    @property
    def noise(self) -> SumNoise | None:
        """Nothing."""
        return None

    @property
    def are_apart(self) -> bool:
        """They are on machines of their own."""
        return True

    def here(self) -> LocalRecords:
        """Refuse: they are not.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(
            "Heads and weights are chosen by risk from clients' records, and these are on "
            "machines of their own. Set pooling, regularisation and exposure in "
            "method.options to numbers."
        )

    def means(
        self, cohort: Cohort, d: int, round_index: int
    ) -> Mapping[Handle, Float64[Tensor, " d"]]:
        """Ask clients for the mean of their features."""
        contexts = {client.handle: ClientContext() for client in cohort}
        found = self._asked("mean", contexts, cohort, (d, round_index))
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
        found = self._asked("sum", contexts, cohort, (d, round_index)) if cohort else ()
        diagonal = diagonal_of(d)
        largest = sum(float(each.gram[diagonal].max()) for each in known.sums)
        held, facts = dict[Handle, Sums](), list[Event]()
        for each in found:
            if each.sums is None:
                continue
            new = each.handle not in known.counted  # others are in the total already
            own = float(each.sums.gram[diagonal].max()) * WEIGHT_STEPS
            grown = largest + own * new
            if grown >= EXACT:
                facts.append(AnswerRefused(each.handle, TOO_LARGE))
            else:
                held[each.handle], largest = each.sums, grown
        lacking = frozenset(c.handle for c in cohort).difference(held)
        return replace(self, held=held, lacking=lacking, facts=tuple(facts))

    def sums(self, clients: Iterable[tuple[Client, int]], d: int) -> Sums:
        """Return the sums over these clients, who sent theirs, each at its weight."""
        found = Sums.nothing(d, self.classes)
        for client, weight in clients:
            if weight:
                found += self.held[client.handle].times(weight)
        return found

    def noted(self, sums: ClusterSums) -> ClusterSums:
        """Return the sums with the digest of what each client in them sent."""
        sent = {handle: each.digest() for handle, each in self.held.items()}
        known = {**sums.digests, **sent}
        digests = {h: digest for h, digest in known.items() if h in sums.counted}
        return sums.model_copy(update={"digests": digests})

    def judging(
        self, backend: Backend, known: ClusterSums | None, *, last: bool
    ) -> Backend:
        """Return how clients choose by what they are sent, and train nothing."""
        if not isinstance(backend, RemoteClients):
            raise ConfigError(
                f"Remote clients choose through RemoteClients, found "
                f"{type(backend).__name__}. Leave the steps' backend as it is."
            )
        return RemoteJudges(backend, self.fingerprint, known, last)

    def _asked(
        self,
        task: RequestType,
        contexts: Mapping[Handle, ClientContext],
        cohort: Cohort,
        where: tuple[int, int],
    ) -> tuple[ClientResponse, ...]:
        width, t = where
        request = ClientRequest(
            task,
            (),
            (),
            ("round", t),
            contexts,
            round_index=t,
            width=width,
            features=self.fingerprint,
        )
        return self.send(request, cohort)


@dataclass(frozen=True, slots=True)
class RemoteJudges:
    """Remote clients who compare heads, and take one.

    Attributes:
        clients: how they are reached.
        fingerprint: of the features.
        known: the sums of which each client's share is left out; None: of none.
        last: whether the run ends with it.
    """

    clients: RemoteClients
    fingerprint: str
    known: ClusterSums | None
    last: bool

    def evaluate(
        self, models: tuple[Params, ...], cohort: Cohort, streams: Streams
    ) -> Tensor:
        """Refuse, as nobody but a client knows what it measures."""
        return self.clients.evaluate(models, cohort, streams)

    def nearest(
        self, state: ServerState, cohort: Cohort, streams: Streams
    ) -> Mapping[Handle, int]:
        """Ask clients which model has the lowest loss on their examples."""
        return self.clients.nearest(state, cohort, streams)

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
        asked = replace(self.clients, send=self._send)
        return asked.choose(selection, state, cohort, streams)

    def _send(
        self, request: ClientRequest, cohort: Cohort
    ) -> tuple[ClientResponse, ...]:
        """Send heads, and what tells a client what they would be without it."""
        task: RequestType = "settle" if self.last else "compare"
        request = replace(request, task=task, features=self.fingerprint)
        if self.known is None:
            return self.clients.send(request, cohort)
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
            models=tuple(params_of(head) for head in heads),
            roots={j: heads[j].root for j in met},
            contexts=contexts,
        )
        return self.clients.send(request, cohort)
