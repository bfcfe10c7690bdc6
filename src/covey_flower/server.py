"""The server's side of a federation on Flower: its nodes, requests to them, and limits on answers.

No client may move a model, or weigh, far more than most. Both rules compare with a median, so
that an attacker needs a majority of the nodes to change the limit.
"""

import logging
import secrets
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

from flwr.app import Message
from flwr.serverapp import Grid

from covey import Params, UnfinishedError, __version__
from covey.algorithms.client_requests import ClientRequest, ClientResponse
from covey.algorithms.state import Cohort
from covey.base.events import (
    AnswerRefused,
    AnswersMissing,
    BudgetSpent,
    ClientsReported,
    Event,
    WeightReduced,
)
from covey.base.names import ClientName, Handle
from covey.base.params import norm
from covey.data.source import DataProfile
from covey.secure_sums.messages import Terms
from covey.settings.clients import ClientReports, Counted
from covey_flower.deployment import DECLARATION, Declaration
from covey_flower.identity import (
    BudgetSpentError,
    InvalidMessageError,
    NameBindings,
    NodeIdentity,
    check_keys,
    identity_of,
)
from covey_flower.messages import (
    MAX_CLASSES,
    MAX_EXAMPLES,
    Carried,
    Hello,
    PendingQuestion,
    Question,
    Reply,
    hello_of,
    lengths_of,
    make_message,
    reply_of,
)

SLOWER = 3.0
"""How many times as long as the faster half a node may take."""
LEAST_SECONDS = 60.0
"""What every node may take, however fast the others are, within the configured limit."""

PATIENCE = 5
"""Times in a row that a node may let its time pass; then it must come anew."""


NORM_FACTOR = 5.0
"""An update is refused if its L2 norm is above so many times the median of its round, and
a weight is reduced if with it the update moves the mean by so many times the median."""

MIN_TO_COMPARE = 3
"""Answers from which on they are compared."""

log = logging.getLogger("covey.flower")

HELLO_SECONDS = 120.0
"""How long a node may take to identify itself."""

SILENT = "it must answer in time, and has not several times in a row: restart the node"

POLL_SECONDS = 1.0
"""Seconds between two polls, for present nodes and for answers."""


def time_limit(limit: float, half: float | None) -> float:
    """Return how long a round waits for its last answers, in seconds.

    Args:
        limit: the configured limit.
        half: after how long more than half of the nodes with a request had answered; None:
            they have not.
    """
    if half is None:
        return limit
    return min(limit, max(LEAST_SECONDS, SLOWER * half))


class Backoff:
    """Which nodes are left alone for a while: for 2^(k-1) rounds after k silences in a row.

    After `PATIENCE` silences a node gets no more requests, until it has been away and is
    back: that is how a node that was restarted looks.
    """

    def __init__(self) -> None:
        self._silences: dict[int, int] = {}
        self._rounds_off: dict[int, int] = {}

    def begin_round(self, reached: Collection[int]) -> None:
        """Count down; who is away is forgotten."""
        self._silences = {n: k for n, k in self._silences.items() if n in reached}
        self._rounds_off = {
            node: left - 1
            for node, left in self._rounds_off.items()
            if node in reached and left > 1
        }

    def is_off(self, node: int) -> bool:
        """Return whether a node gets no request in this round."""
        return node in self._rounds_off or self._silences.get(node, 0) >= PATIENCE

    def answered(self, node: int) -> None:
        """Note an answer: all is well again."""
        self._silences.pop(node, None)

    def record_timeout(self, node: int) -> bool:
        """Note a silence that took all its time; return whether it was the last one."""
        self._silences[node] = self._silences.get(node, 0) + 1
        # this round counts as well
        self._rounds_off[node] = 2 ** (self._silences[node] - 1) + 1
        return self._silences[node] == PATIENCE


class NormRule:
    """Who sends an update that is far longer than the others': |u| > 5 max(m_t, r_t / 2).

    m_t is the median of the norms above 0 in round t, and r_t = max(m_{t-1}, r_{t-1} / 2).
    An update of 0 moves nothing, and does not make a norm for those that do; nor do tiny
    ones in a round in which most of the others are not there.
    """

    def __init__(self) -> None:
        self._usual: dict[str, float] = {}

    def outsized(self, task: str, updates: Mapping[Handle, Params]) -> list[Handle]:
        """Return whose update is too long, in a round of one task."""
        norms = {handle: norm(update) for handle, update in updates.items()}
        moving = [length for length in norms.values() if length > 0]
        if len(moving) < MIN_TO_COMPARE:
            return []
        reference = max(median(moving), self._usual.get(task, 0.0) / 2)
        limit = NORM_FACTOR * reference
        self._usual[task] = reference
        return [handle for handle, length in norms.items() if length > limit]


def reduced_weights(
    weights: Mapping[Handle, float], updates: Mapping[Handle, Params]
) -> dict[Handle, float]:
    """Return who counts for less than it weighs: w_i <- 5 med_k(w_k |u_k|) / |u_i|.

    What a client moves the mean by is its weight times its update's length, so that the
    two are bounded together.
    """
    norms = {handle: norm(update) for handle, update in updates.items()}
    moved = {h: weights[h] * length for h, length in norms.items() if length > 0}
    if len(moved) < MIN_TO_COMPARE:
        return {}
    limit = NORM_FACTOR * median(moved.values())
    return {h: limit / norms[h] for h, most in moved.items() if most > limit}


NodeKind = tuple[tuple[int, ...], bool, bool, str]
"""What clients' examples must have in common: shape, whether images or whole, and columns."""


@dataclass(frozen=True, slots=True)
class AdmissionPolicy:
    """On what terms nodes take part.

    Attributes:
        run: names the run, for what nodes remember.
        settings_hash: hash of the settings that server and nodes must share.
        invited: names of clients; empty: every node that the SuperLink lets in.
        home: folder of a deployment, whose list is read in every round, and stands instead.
        timeout: seconds that a round waits for a node at most (`time_limit`).
        compares_norms: whether an update far larger than the others' is refused. Not
            where updates are clipped anyway, since refusals would reveal something of the rest.
        equal_weights: whether an answer that claims a weight other than 1 is refused.
        hides_sizes: whether no client reports how many examples it has.
        keys: of clients' names, as far as the run has them.
        binds_names: whether a name belongs to the key of the node that first came with it.
    """

    run: str
    settings_hash: str
    invited: frozenset[ClientName] = frozenset()
    home: Path | None = None
    timeout: float = 600.0
    compares_norms: bool = True
    equal_weights: bool = False
    hides_sizes: bool = False
    keys: Mapping[ClientName, str] = field(default_factory=dict[ClientName, str])
    binds_names: bool = True


class FlowerServer:
    """The nodes of one run, by the names of their clients.

    A name belongs to the key of the node that first came with it (`NameBindings`); another
    one that claims it is refused, whether that node is there or not. No client is known by a
    node id alone: ids change with every SuperLink that keeps nothing.
    """

    def __init__(
        self, grid: Grid, policy: AdmissionPolicy, profile: DataProfile | None = None
    ) -> None:
        self._grid, self._policy, self._profile = grid, policy, profile
        self._backoff = Backoff()
        self._hellos: dict[int, Hello] = {}
        self._events: list[Event] = []
        self._leaving: dict[ClientName, None] = {}
        self._refused: set[Handle] = set()
        self._rejected: dict[int, str] = {}
        self._norms = NormRule()
        self._names = NameBindings(policy.keys, enforced=policy.binds_names)
        self._identities: dict[int, NodeIdentity] = {}

    @property
    def profile(self) -> DataProfile:
        """What the clients' data look like, by the first who came; at least one has."""
        if self._profile is None:
            first = min(self._hellos.values(), key=lambda hello: hello.name)
            classes = max(hello.classes for hello in self._hellos.values())
            self._profile = DataProfile(
                first.shape, first.images, classes, first.whole, first.columns
            )
        return self._profile

    def gather(
        self,
        fewest: int,
        counted: Counted = frozenset,
        known: Collection[ClientName] = (),
        wanted: int = 0,
    ) -> Collection[ClientName]:
        """Return the clients that are reachable, once so many of them are counted.

        Of `wanted` ones some may be missing once the time of a round has passed.

        Raises:
            UnfinishedError: fewer than `fewest` were there then.
        """
        end, count, waiting = time.monotonic() + self._policy.timeout, max(wanted, fewest), ""
        while len(here := frozenset(counted(names := self.available_clients()))) < count:
            absent = frozenset(counted(self._invited() or known)) - here
            named_here, lacking = (
                ", ".join(sorted(names)) or "none known" for names in (here, absent)
            )
            before, waiting = waiting, f"{count} nodes, there: {named_here}; not there: {lacking}"
            if waiting != before:
                log.warning("Waiting for %s.", waiting)
            if time.monotonic() < end:
                time.sleep(POLL_SECONDS)
            elif len(here) < fewest:
                raise UnfinishedError(
                    f"A round must have {fewest} nodes (population.min_clients), found too few in "
                    f"time ({waiting}): start them, and the run again."
                )
            else:
                log.warning("Going on without all nodes.")
                break
        return names

    def _invited(self) -> frozenset[ClientName]:
        home = self._policy.home
        return frozenset(Declaration.read(home).plan.invited) if home else self._policy.invited

    def available_clients(self) -> Collection[ClientName]:
        """Return the clients that are reachable now; new nodes identify themselves first."""
        infos = {info.node_id: info for info in self._grid.get_nodes()}
        self._identities = {node: identity_of(info) for node, info in infos.items()}
        reached, invited = infos.keys(), self._invited()
        stay = {n: h for n, h in self._hellos.items() if n in reached}
        self._hellos = {n: h for n, h in stay.items() if h.name in invited or not invited}
        self._backoff.begin_round(reached)
        new = reached - self._hellos.keys()
        self._greet(sorted(node for node in new if not self._backoff.is_off(node)))
        return frozenset(
            hello.name for node, hello in self._hellos.items() if not self._backoff.is_off(node)
        )

    def keys(self) -> Mapping[ClientName, str]:
        """Return the fingerprint of the key of each client that has come."""
        return self._names.keys()

    def send(self, request: ClientRequest, cohort: Cohort) -> tuple[ClientResponse, ...]:
        """Return the answers that came in time and in order, in the cohort's order."""
        at = {hello.name: node for node, hello in self._hellos.items()}
        answers = self._received(
            {
                node: self._pending(request, self._hellos[node], client.handle)
                for client in cohort
                if (node := at.get(client.name)) is not None
            }
        )
        received = {answer.handle for answer in answers}
        missing = tuple(c.handle for c in cohort if c.handle not in received | self._refused)
        if missing:
            self._events.append(AnswersMissing(request.task, missing))
        order = {client.handle: place for place, client in enumerate(cohort)}
        return tuple(sorted(answers, key=lambda answer: order[answer.handle]))

    def reports(self) -> ClientReports:
        """Return what has happened since the last call."""
        reports = ClientReports(tuple(self._events), tuple(self._leaving))
        self._events, self._leaving = [], {}
        return reports

    def _greet(self, nodes: Sequence[int]) -> None:
        """Ask nodes to identify themselves."""
        tokens = {node: secrets.token_hex(16) for node in nodes}
        run, hello = self._policy.run, ClientRequest("hello")
        questions = (
            make_message(Question(__version__, run, token, "", hello), node, HELLO_SECONDS)
            for node, token in tokens.items()
        )
        hellos: list[tuple[int, Hello]] = []
        for node, message in self._exchanged(questions, HELLO_SECONDS):
            try:
                hello = hello_of(message.content, tokens[node], self._policy.settings_hash)
                hellos.append((node, hello))
            except InvalidMessageError as error:
                self._reject(node, str(error))
        expected = self._expected([hello for _, hello in hellos])
        for node, hello in hellos:
            try:
                self._admit(node, hello, expected)
            except InvalidMessageError as error:
                self._reject(node, str(error), hello.name)

    def _expected(self, hellos: Sequence[Hello]) -> NodeKind | None:
        """Return what examples must be like: as those of most who come first."""
        known = self._profile or next(iter(self._hellos.values()), None)
        if known:
            return _kind(known)
        invited = self._invited()
        kinds = Counter(_kind(hello) for hello in hellos if hello.name in invited or not invited)
        return kinds.most_common(1)[0][0] if kinds else None

    def _reject(self, node: int, reason: str, name: ClientName = "") -> None:
        """Put down why a node is refused, once: it gets a request again in every round.

        Its name, and where the list of nodes is, stand in the log alone.
        """
        if self._rejected.get(node) != reason:
            self._rejected[node] = reason
            node_name = name or self._identities.get(node, NodeIdentity()).name or str(node)
            home = self._policy.home
            where = f" The list of nodes: {home / DECLARATION}." if home else ""
            why = reason[2:] if reason.startswith("it ") else f": {reason}"
            log.warning('Refused: node "%s"%s.%s', node_name, why, where)
            self._events.append(AnswerRefused(None, reason))

    def _admit(self, node: int, hello: Hello, expected: NodeKind | None) -> None:
        taken = {other.name for other in self._hellos.values()}
        invited = self._invited()
        if hello.name in taken:
            raise InvalidMessageError("another node has its name: give it one of its own")
        if invited and hello.name not in invited:
            raise InvalidMessageError(
                "it must be on the list of nodes: add it (`covey deploy add`), or correct it"
            )
        if expected and expected[:3] == _kind(hello)[:3] and expected[3] != hello.columns:
            raise InvalidMessageError(
                "its tables must have the others' columns in the others' order: compare their names"
            )
        if expected and expected != _kind(hello):
            other = " of another kind (images, features or whole numbers)"
            raise InvalidMessageError(
                f"its examples must be {expected[0]}, like the others', found "
                f"{hello.shape}{other if expected[0] == hello.shape else ''}"
            )
        most = self._profile.classes if self._profile else MAX_CLASSES
        if hello.classes > most:
            raise InvalidMessageError(f"its examples must be of at most {most} classes, as here")
        self._names.bind(hello.name, self._identities.get(node, NodeIdentity()))
        self._hellos[node] = hello

    def _pending(self, request: ClientRequest, hello: Hello, handle: Handle) -> PendingQuestion:
        own, run = request.for_client(handle, hello.name), self._policy.run
        token, classes = secrets.token_hex(16), self.profile.classes
        question = Question(__version__, run, token, hello.name, own, classes)
        most = MAX_EXAMPLES if self._policy.hides_sizes else hello.examples
        return PendingQuestion(handle, question, most, hello.held_out)

    def _received(self, pending: Mapping[int, PendingQuestion]) -> list[ClientResponse]:
        """Return the answers that are in order."""
        self._refused = set()
        timeout = self._policy.timeout
        carried = Carried()  # what several of them carry is held once
        messages = (
            make_message(waiting_for.question, node, timeout, carried)
            for node, waiting_for in pending.items()
        )
        replies = self._exchanged(messages, timeout)
        received: dict[Handle, tuple[Reply, ClientResponse]] = {}
        while replies:  # each is let go once it is read: it is as large as the model
            node, message = replies.pop(0)
            handle = pending[node].handle
            try:
                if handle in received:
                    raise InvalidMessageError("it has answered already")  # noqa: TRY301
                reply, answer = reply_of(message.content, pending[node])
                self._check_answer(node, pending[node], answer)
                received[handle] = reply, answer
            except BudgetSpentError:
                self._events.append(BudgetSpent((handle,)))
                self._refused.add(handle)
            except InvalidMessageError as error:
                self._refuse(handle, str(error))
        answers = [answer for _, answer in received.values()]
        compared = answers if self._policy.compares_norms else ()
        lengths = _updates(compared) or lengths_of(compared)
        task = next((task.question.request.task for task in pending.values()), "")
        for handle in self._norms.outsized(task, lengths):
            what = "features are" if received[handle][1].sums else "update is"
            reason = f"its {what} far larger than the others'"
            del received[handle]
            self._refuse(handle, reason)
        replies = {handle: reply for handle, (reply, _) in received.items()}
        accuracy = {h: r.accuracy for h, r in replies.items() if r.accuracy is not None}
        above = {h: r.above for h, r in replies.items() if r.above is not None}
        if accuracy or above:
            self._events.append(ClientsReported(accuracy, above))
        self._leaving |= {reply.name: None for reply in replies.values() if reply.leave}
        accepted = [answer for _, answer in received.values()]
        return accepted if self._policy.equal_weights else self._weighed(accepted)

    def _refuse(self, handle: Handle, reason: str) -> None:
        """Put down a refusal: a refused client is not missing, too."""
        log.warning("An answer was refused: %s.", reason)
        self._events.append(AnswerRefused(handle, reason))
        self._refused.add(handle)

    def _check_answer(self, node: int, pending: PendingQuestion, answer: ClientResponse) -> None:
        """Refuse weights above what was announced, and keys that the node did not sign."""
        if self._policy.equal_weights and answer.weight != 1:
            raise InvalidMessageError("its weight must be 1, like all others'")
        if answer.weight > pending.examples:
            raise InvalidMessageError(f"its weight must be at most its {pending.examples} examples")
        question, sums = pending.question, pending.question.request.sums
        if sums is not None and sums.step == "keys":
            terms = Terms(bytes.fromhex(question.context.session), sums.length)
            public = self._identities.get(node, NodeIdentity()).public
            check_keys(question.name, terms, answer.letter, public)

    def _weighed(self, answers: Sequence[ClientResponse]) -> list[ClientResponse]:
        """Return answers of which none weighs far more than most, with what it moves."""
        weights = {answer.handle: answer.weight for answer in answers}
        counted = weights | reduced_weights(weights, _updates(answers))
        self._events += [
            WeightReduced(handle, weight, counted[handle])
            for handle, weight in weights.items()
            if counted[handle] < weight
        ]
        return [replace(answer, weight=counted[answer.handle]) for answer in answers]

    def _exchanged(self, messages: Iterable[Message], timeout: float) -> list[tuple[int, Message]]:
        """Send messages, and return what came back from the node that got each.

        A node that ran into an error gives no answer: its error comes from the SuperLink.
        """
        out = [list(messages)]
        sent = [message.metadata for message in out[0]]
        if not sent:
            return []
        # handed over whole: nothing here holds the models while answers are waited for
        waiting = {message for message in self._grid.push_messages(out.pop()) if message}
        replies = self._answers(waiting, timeout)
        to = {metadata.message_id: metadata.dst_node_id for metadata in sent}
        exchanged = [
            (to[reply.metadata.reply_to_message_id], reply)
            for reply in replies
            if reply.metadata.reply_to_message_id in to
        ]
        genuine = [
            (node, reply)
            for node, reply in exchanged
            if reply.has_content() and reply.metadata.src_node_id == node
        ]
        answered = {node for node, _ in exchanged}
        for node in answered:
            self._backoff.answered(node)
        for node in sorted({to[message_id] for message_id in waiting} - answered):
            if self._backoff.record_timeout(node):  # it let its time pass
                self._reject(node, SILENT)
        lost = Counter(reply.has_error() for reply in replies)[True]
        log.info("Asked %d nodes: %d answers, %d errors.", len(sent), len(genuine), lost)
        return genuine

    def _answers(self, waiting: set[str], timeout: float) -> list[Message]:
        """Return what comes in time, and take it out of what is waited for."""
        sent, begun = len(waiting), time.monotonic()
        replies: list[Message] = []
        half: float | None = None
        while waiting:
            pulled = list(self._grid.pull_messages(waiting))
            replies += pulled
            waiting -= {message.metadata.reply_to_message_id for message in pulled}
            passed = time.monotonic() - begun
            if half is None and sent > 2 * len(waiting):
                half = passed
            if not waiting or passed >= time_limit(timeout, half):
                break
            time.sleep(POLL_SECONDS)
        return replies


def _updates(answers: Iterable[ClientResponse]) -> dict[Handle, Params]:
    return {answer.handle: answer.update for answer in answers if answer.update is not None}


def _kind(described: DataProfile | Hello) -> NodeKind:
    """Return what clients' examples must have in common."""
    return described.shape, described.images, described.whole, described.columns
