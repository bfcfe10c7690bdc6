"""Which questions a node answers, and how often: as the rounds of its own settings need.

An answer that depends on the models that a server sends says something of the records: from
some seventy choices among models of its own a server has a client's number of records of each
class. So a node answers what its run needs, as often as its rounds do, and `repeats` times
more for replays: of clients that left, after a crash, or in another run of these settings.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Protocol, TypeVar, runtime_checkable

from filelock import FileLock
from pydantic import ConfigDict, TypeAdapter

from covey import Config
from covey.algorithms.client_requests import ClientContext, ClientRequest
from covey.base.params import model_hash
from covey.data.examples import Client
from covey.secure_sums.messages import Reason, RefusedError
from covey.settings.aggregation import summed_up
from covey_flower.memory import EXACT, read_kept, write_kept

SERVER = "server"

CHOOSING = ("choose", "reassign", "compare")
"""Tasks in which a client takes a cluster by itself."""

_ASSIGNED = ("train", "count")
"""Tasks about the model of a cluster that the server names."""

_SAME_EVERY_TIME = ("mean", "sum", "sums")
"""Answers that depend on no model: a second one says nothing more."""

_COUNTED_AS = {"choose": "updates", "train": "updates", "count": "counts"}
"""What is one answer a round, whatever the task that it comes by."""

_LOSS = "how often the client has answered is not known"


@dataclass(frozen=True, slots=True)
class Answered:
    """The answers of one kind, over all runs of the same settings.

    Attributes:
        first: how many came in a round later than any before.
        again: how many others.
        latest: the latest round.
        clusters: what was answered, by a digest of the question and of the records.
    """

    __pydantic_config__: ClassVar[ConfigDict] = EXACT

    first: int = 0
    again: int = 0
    latest: int = -1
    clusters: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True)
class AllAnswered:
    """The answers of all kinds that are counted."""

    __pydantic_config__: ClassVar[ConfigDict] = EXACT

    kinds: Mapping[str, Answered] = field(default_factory=dict[str, Answered])


@runtime_checkable
class Chosen(Protocol):
    """An answer that names a cluster."""

    @property
    def cluster(self) -> int:
        """The cluster; 0 where it names none."""
        ...


C = TypeVar("C", bound=Chosen)

_answered_of = TypeAdapter(AllAnswered).validate_python
_request_json = TypeAdapter(ClientRequest).dump_json


def answers_needed(config: Config) -> Mapping[str, int]:
    """Return how many answers of each kind the rounds need, each played once.

    A kind is a task or, under masks, what is added up.
    """
    method, rounds, of = config.method, config.rounds, summed_up(config)
    masks = config.privacy_plan.masks
    if masks:
        # where it leaves, a client sends its own sums, if its owner lets it
        needed = dict.fromkeys(of, rounds) | ({"sum": rounds} if "sums" in of else {})
    elif method.traits.subtracts:
        needed = {"sum": rounds}
        needed |= {"mean": rounds} if method.starts_warm else {}
        needed |= {"compare": rounds, "reassign": 1} if method.offers_choices else {}
    else:
        needed = {"train": rounds}
        opening = method.opening(rounds)
        places = opening.kept_rounds if opening.how == "warm" else rounds * method.is_own
        choices = {"choose": rounds, "reassign": 1, "place": places}
        needed |= {kind: most for kind, most in choices.items() if method.offers_choices and most}
    if "counts" in of:
        counted = "counts" if masks else "count"
        needed[counted] = rounds // config.risk.every + 1
    return needed


@dataclass(frozen=True, slots=True)
class Allowance:
    """What one node may still answer.

    Attributes:
        file: what it answered so far, in all runs of these settings.
        config: the federation's settings, as the client has them.
        repeats: how often all rounds may be played once more.
    """

    file: Path
    config: Config
    repeats: int

    def check(self, request: ClientRequest, context: ClientContext) -> None:
        """Refuse a question that the settings do not need, or not in this form.

        Raises:
            RefusedError: they do not.
        """
        models, rounds = self.config.method.num_models, self.config.rounds
        if (
            _kind(request) not in answers_needed(self.config)
            or request.round_index > rounds
            or (models is not None and len(request.models) > models)
            or (request.task in _ASSIGNED and context.assigned is None)
        ):
            raise RefusedError(Reason.NOT_NEEDED, SERVER, "Give both sides the same covey.toml.")

    def answer(
        self,
        request: ClientRequest,
        context: ClientContext,
        client: Client,
        make: Callable[[int | None], C],
    ) -> C:
        """Return an answer, which counts before it is sent.

        Args:
            request: the question.
            context: what the client receives about itself.
            client: who answers.
            make: answers; of a question that was answered before, with the cluster of then.

        Raises:
            RefusedError: the client has answered as often as its settings need.
        """
        kind = _kind(request)
        if kind in _SAME_EVERY_TIME:
            return make(None)
        counter, most = _COUNTED_AS.get(kind, kind), answers_needed(self.config)[kind]
        digest = _digest(request, context, client)
        self.file.parent.mkdir(mode=0o700, exist_ok=True)
        with FileLock(self.file.with_suffix(".lock"), mode=0o600):
            known = read_kept(self.file, _answered_of, _LOSS)
            before = known.kinds.get(counter, Answered())
            after = self._counted(before, digest, request.round_index, most)
            answer = make(before.clusters.get(digest))
            after = replace(after, clusters={**after.clusters, digest: answer.cluster})
            write_kept(self.file, AllAnswered({**known.kinds, counter: after}))
        return answer

    def _counted(self, before: Answered, digest: str, round_index: int, most: int) -> Answered:
        """Return what has been answered with one more; a repeated answer is no other."""
        anew = self.config.privacy_plan.clients_add_noise and self.config.secrets.source == "os"
        if digest in before.clusters and not anew:  # other noise on the same would show it
            return before
        if round_index > before.latest and before.first < most:
            return replace(before, first=before.first + 1, latest=round_index)
        if before.again >= self.repeats * most:
            remedy = "For more replays raise `repeats` in node.toml."
            raise RefusedError(Reason.TOO_OFTEN, SERVER, remedy)
        return replace(before, again=before.again + 1)


def _kind(request: ClientRequest) -> str:
    return request.task if request.sums is None else request.sums.of


def _digest(request: ClientRequest, context: ClientContext, client: Client) -> str:
    """Return what names a question to a client with these records and preferences."""
    same = replace(request, contexts={"": replace(context, session="")}, letters={})
    text = _request_json(same, exclude={"models", "roots", "broadcast"})
    digest = hashlib.sha256(text + repr(client.preference).encode())
    roots = [{str(j): root} for j, root in request.roots.items()]
    for params in (*request.models, *roots, *request.broadcast.values()):
        digest.update(bytes.fromhex(model_hash([params])))
    for examples in (client.train, client.holdout):
        digest.update(examples.inputs.numpy().tobytes() + examples.labels.numpy().tobytes())
    return digest.hexdigest()
