"""The server's side of a federation on Flower: the nodes, and how they are asked."""

import logging
import secrets
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from statistics import median

from flwr.app import Message
from flwr.serverapp import Grid

from covey.algorithms import ClientRequest, ClientResponse, Cohort
from covey.build import ClientReports, DataProfile
from covey.errors import RunError
from covey.events import AnswerRefused, AnswersMissing, ClientsReported, Event
from covey.flower.messages import (
    MIN_TO_COMPARE,
    NORM_FACTOR,
    Hello,
    InvalidMessageError,
    PendingQuestion,
    Question,
    Reply,
    hello_of,
    make_message,
    reply_of,
)
from covey.params import norm
from covey.types import ClientName, Handle

__all__ = ["AdmissionPolicy", "FlowerServer"]

log = logging.getLogger(__name__)

HELLO_SECONDS = 120.0
"""How long a node may take to identify itself."""

POLL_SECONDS = 1.0
"""Seconds between two polls for present nodes."""


@dataclass(frozen=True, slots=True)
class AdmissionPolicy:
    """On what terms nodes take part.

    Attributes:
        run: names the run, for what nodes remember.
        settings_hash: hash of the settings that server and nodes must share.
        invited: names of clients; empty: whoever the SuperLink lets in.
        timeout: seconds that a round waits for a node.
        compares_norms: whether an update far larger than the others' is refused. Not
            where updates are clipped anyway, since who is refused would tell of the rest.
        equal_weights: whether an answer that claims a weight other than 1 is refused.
    """

    run: str
    settings_hash: str
    invited: frozenset[ClientName] = frozenset()
    timeout: float = 600.0
    compares_norms: bool = True
    equal_weights: bool = False


class FlowerServer:
    """The nodes of one run, by the names of their clients.

    A name belongs to the node that bears it as long as that node is there; another one
    that claims it is refused. Nobody is known by a node id alone: ids change with every
    SuperLink that keeps nothing.
    """

    def __init__(
        self, grid: Grid, policy: AdmissionPolicy, profile: DataProfile | None = None
    ) -> None:
        self._grid = grid
        self._policy = policy
        self._profile = profile
        self._hellos: dict[int, Hello] = {}
        self._events: list[Event] = []
        self._leaving: dict[ClientName, None] = {}
        self._refused: set[Handle] = set()
        self._rejected: dict[int, str] = {}

    @property
    def profile(self) -> DataProfile:
        """What the clients' data look like, by the first who came.

        Raises:
            RunError: nobody has come yet.
        """
        if self._profile is None:
            if not self._hellos:
                raise RunError(
                    "A federation learns from its nodes what their data look like, found "
                    "no node. Start the nodes first, and see `covey deploy status`."
                )
            first = min(self._hellos.values(), key=lambda hello: hello.name)
            classes = max(hello.classes for hello in self._hellos.values())
            self._profile = DataProfile(first.shape, first.images, classes, first.whole)
        return self._profile

    def wait_for(
        self,
        count: int,
        leaving: Collection[ClientName] = (),
        report: Callable[[str], None] = log.info,
    ) -> None:
        """Wait until so many clients are there that do not ask to leave."""
        before = -1
        while (
            here := len(frozenset(self.available_clients()).difference(leaving))
        ) < count:
            if here != before:
                report(f"Waiting for {count} nodes: {here} are there.")
            before = here
            time.sleep(POLL_SECONDS)

    def available_clients(self) -> Collection[ClientName]:
        """Return the clients that can be asked now; new nodes identify themselves first."""
        there = set(self._grid.get_node_ids())
        self._hellos = {n: h for n, h in self._hellos.items() if n in there}
        self._greet(sorted(there - self._hellos.keys()))
        return frozenset(hello.name for hello in self._hellos.values())

    def ask(self, request: ClientRequest, cohort: Cohort) -> tuple[ClientResponse, ...]:
        """Return the answers that came in time and in order, in the cohort's order."""
        at = {hello.name: node for node, hello in self._hellos.items()}
        asked = {
            at[client.name]: self._question(request, client.name, client.handle)
            for client in cohort
            if client.name in at
        }
        answers = self._received(asked)
        came = {each.handle for each in answers}
        missing = tuple(
            c.handle for c in cohort if c.handle not in came | self._refused
        )
        if missing:
            self._events.append(AnswersMissing(request.task, missing))
        order = {client.handle: place for place, client in enumerate(cohort)}
        return tuple(sorted(answers, key=lambda each: order[each.handle]))

    def reports(self) -> ClientReports:
        """Return what has happened since the last time this was asked."""
        reports = ClientReports(tuple(self._events), tuple(self._leaving))
        self._events, self._leaving = [], {}
        return reports

    def _greet(self, nodes: Sequence[int]) -> None:
        """Ask nodes to identify themselves."""
        tokens = {node: secrets.token_hex(16) for node in nodes}
        questions = (
            make_message(
                self._bare_question("hello", "", token), {}, node, HELLO_SECONDS
            )
            for node, token in tokens.items()
        )
        for node, message in self._exchanged(questions, HELLO_SECONDS):
            try:
                hello = hello_of(message, tokens[node], self._policy.settings_hash)
                self._admit(node, hello)
            except InvalidMessageError as error:
                self._reject(node, str(error))

    def _reject(self, node: int, reason: str) -> None:
        """Put down why a node is refused, once: it is asked again in every round."""
        if self._rejected.get(node) != reason:
            self._rejected[node] = reason
            log.warning("A node was refused: %s.", reason)
            self._events.append(AnswerRefused(None, reason))

    def _admit(self, node: int, hello: Hello) -> None:
        taken = {each.name for each in self._hellos.values()}
        invited = self._policy.invited
        if hello.name in taken:
            raise InvalidMessageError(
                "another node of its name is there: give it a name of its own"
            )
        if invited and hello.name not in invited:
            raise InvalidMessageError(
                "it is not invited: put its name on the list, or correct it"
            )
        known = self._profile or next(
            (
                DataProfile(h.shape, h.images, h.classes, h.whole)
                for h in self._hellos.values()
            ),
            None,
        )
        if known and _kind(known) != _kind(hello):
            other = " of another kind (images, features or whole numbers)"
            raise InvalidMessageError(
                f"its examples must be {known.shape}, like the others', found "
                f"{hello.shape}{other if known.shape == hello.shape else ''}"
            )
        self._hellos[node] = hello

    def _bare_question(self, task: str, name: ClientName, token: str) -> Question:
        return Question(version("covey"), self._policy.run, token, name, task)  # type: ignore[arg-type]

    def _question(
        self, request: ClientRequest, name: ClientName, handle: Handle
    ) -> PendingQuestion:
        context = request.contexts[handle]
        needed = (
            range(len(request.models)) if context.given is None else (context.given,)
        )
        question = replace(
            self._bare_question(request.task, name, secrets.token_hex(16)),
            classes=self.profile.classes,
            num_models=len(request.models),
            offered=request.available,
            path=request.path,
            recipe=request.recipe.numbers,
            round_index=request.round_index,
            slip=context,
            broadcast=tuple(request.broadcast),
        )
        models = {j: request.models[j] for j in needed}
        return PendingQuestion(handle, question, models, request.broadcast)

    def _received(self, pending: Mapping[int, PendingQuestion]) -> list[ClientResponse]:
        """Return the answers that are in order."""
        self._refused = set()
        timeout = self._policy.timeout
        messages = (
            make_message(a.question, a.start, node, timeout, a.broadcast)
            for node, a in pending.items()
        )
        found: dict[Handle, tuple[Reply, ClientResponse]] = {}
        for node, message in self._exchanged(messages, timeout):
            handle = pending[node].handle
            try:
                if handle in found:
                    raise InvalidMessageError("it has answered already")  # noqa: TRY301
                reply, answer = reply_of(message, pending[node])
                if self._policy.equal_weights and answer.weight != 1:
                    raise InvalidMessageError("its weight must be 1, like all others'")  # noqa: TRY301
                found[handle] = reply, answer
            except InvalidMessageError as error:
                self._refuse(handle, str(error), counts=handle not in found)
        for handle in self._outsized([answer for _, answer in found.values()]):
            del found[handle]
            self._refuse(
                handle, "its update is far larger than the others'", counts=True
            )
        self._record_reports({h: reply for h, (reply, _) in found.items()})
        return [answer for _, answer in found.values()]

    def _refuse(self, handle: Handle, reason: str, *, counts: bool) -> None:
        """Put down a refusal; only one that counts makes the client absent."""
        log.warning("An answer was refused: %s.", reason)
        self._events.append(AnswerRefused(handle, reason))
        if counts:
            self._refused.add(handle)

    def _outsized(self, answers: Sequence[ClientResponse]) -> list[Handle]:
        """Return whose update is longer than NORM_FACTOR times the median: |u| > 5 m."""
        norms = {a.handle: norm(a.update) for a in answers if a.update is not None}
        if not self._policy.compares_norms or len(norms) < MIN_TO_COMPARE:
            return []
        limit = NORM_FACTOR * median(norms.values())
        return [handle for handle, length in norms.items() if length > limit]

    def _record_reports(self, replies: Mapping[Handle, Reply]) -> None:
        """Record what clients report."""
        accuracy = {h: r.accuracy for h, r in replies.items() if r.accuracy is not None}
        above = {h: r.above for h, r in replies.items() if r.above is not None}
        if accuracy or above:
            self._events.append(ClientsReported(accuracy, above))
        self._leaving |= {r.name: None for r in replies.values() if r.leave}

    def _exchanged(
        self, messages: Iterable[Message], timeout: float
    ) -> list[tuple[int, Message]]:
        """Send messages, and return what came back from the node that was asked.

        A node that ran into an error gives no answer: its error comes from the SuperLink.
        """
        out = list(messages)
        if not out:
            return []
        replies = list(self._grid.send_and_receive(out, timeout=timeout))
        to = {each.metadata.message_id: each.metadata.dst_node_id for each in out}
        found = [
            (to[reply.metadata.reply_to_message_id], reply)
            for reply in replies
            if reply.metadata.reply_to_message_id in to
        ]
        genuine = [
            (node, reply)
            for node, reply in found
            if reply.has_content() and reply.metadata.src_node_id == node
        ]
        lost = Counter(reply.has_error() for reply in replies)[True]
        log.info("Asked %d nodes: %d answers, %d errors.", len(out), len(genuine), lost)
        return genuine


def _kind(described: DataProfile | Hello) -> tuple[tuple[int, ...], bool, bool]:
    """Return what clients' examples must have in common."""
    return described.shape, described.images, described.whole
