"""What travels between a server and its nodes: covey's questions and answers as messages.

A pure two-way translation. A message holds one JSON text, `covey`, and models as arrays.
Nothing that arrives is believed: every field, shape and number is looked at here, and what
is not valid raises `InvalidMessageError` with a reason that reveals none of the values.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from io import BytesIO
from math import inf, prod
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from numpy.lib.format import read_array_header_1_0, read_array_header_2_0, read_magic
from pydantic import TypeAdapter
from torch import Tensor

from covey import CoveyError, Params, __version__
from covey.algorithms.client_requests import ClientContext, ClientRequest, ClientResponse
from covey.base.names import ClientName, Handle
from covey.membership.estimators import EDGES, FOLDS
from covey.ridge.sums import Sums, fault_of, fault_of_mean
from covey.secure_sums.messages import Reason
from covey_flower.identity import BudgetSpentError, InvalidMessageError

KIND = "train"
"""The one kind of message that a covey client app listens to."""

ROOT = "root"
"""What is sent beside a head that the client is in."""

LETTER, BYTES = "letter", "bytes"
"""What a message of the protocol of secure sums is called, and its one array."""

MAX_COUNT = 10**6
"""The highest count of losses that a client may send, per fold and bin."""

MAX_EXAMPLES = 10**9
"""The highest number of examples that a client may announce."""

MAX_TEXT = 2**16
"""Characters that a node may write; the longest answer, two tables of counts, has 8,000."""

MAX_NAME = 128
"""Characters of a client's name, and of any other word that a node sends."""

MAX_CLASSES = 2**15
"""Classes of a federation that does not know its own yet."""

MAX_NUMBERS = 2**22
"""Numbers of one example, and at most 8 dimensions."""

HEADER = 4_096
"""Bytes that an array may need beside its numbers."""

MAX_SHARES = 2**24
"""Bytes of a step of secure sums beside its numbers: shares for some 8,000 clients. What
is good for fewer clients, the protocol refuses by itself."""

OF_FEATURES = ("mean", "sum")
"""Tasks whose answers are about a client's features, and about no model."""

Counts = tuple[tuple[int, ...], ...]
T = TypeVar("T")


_AS_ARRAYS = {"request": {"models", "roots", "broadcast", "letters"}}
"""What of a question is no text."""


@dataclass(frozen=True, slots=True)
class Question:
    """One message to one node.

    Attributes:
        covey_version: of the server.
        run: names the run, for what a node remembers.
        token: to be sent back; it makes an answer good for this question only.
        name: the client that it is for; empty where the node is to say who it is.
        request: what it is to do, and it alone (`ClientRequest.for_client`).
        classes: how many the federation has; 0: not known yet.
    """

    covey_version: str
    run: str
    token: str
    name: ClientName
    request: ClientRequest
    classes: int = 0

    @property
    def context(self) -> ClientContext:
        """What the client receives about itself."""
        return self.request.contexts.get(self.name, ClientContext())


@dataclass(frozen=True, slots=True)
class Reply:
    """A node's answer, without the update.

    Attributes:
        failed: the kind of error that kept the node from answering; never its text,
            which may hold data.
        leave: whether the client asks to be forgotten.
        accuracy: of the chosen model on its holdout, if it reports that.
        above: whether that model is riskier than the client accepts, if it reports that.
    """

    covey_version: str
    token: str
    name: ClientName
    cluster: int = 0
    weight: float = 1.0
    members: Counts | None = None
    held_out: Counts | None = None
    accuracy: float | None = None
    above: bool | None = None
    leave: bool = False
    failed: str = ""


@dataclass(frozen=True, slots=True)
class Hello:
    """Who a node is.

    Attributes:
        agreement: hash of the settings that server and nodes must share.
        shape: of one example.
        images: whether examples are uint8 images, or else features or ids.
        classes: as many as its own examples show.
        whole: whether examples are whole numbers: ids for an embedding.
        examples: how many it trains on, where weights or counts reveal it anyway; else 1.
            No weight and no count may be above it.
        held_out: how many it holds out, where counts reveal it anyway.
        columns: hash of the names of a table's columns, in their order; "": it has none.
    """

    covey_version: str
    token: str
    name: ClientName
    agreement: str
    shape: tuple[int, ...]
    images: bool
    classes: int
    failed: str = ""
    whole: bool = False
    examples: int = 1
    held_out: int = 0
    columns: str = ""


class PendingQuestion(NamedTuple):
    """What the server remembers of a question until it is answered.

    Attributes:
        examples: how many the client said that it trains on.
        held_out: how many it said that it holds out.
    """

    handle: Handle
    question: Question
    examples: int = MAX_EXAMPLES
    held_out: int = MAX_EXAMPLES


_ADAPTERS: dict[type, TypeAdapter[Any]] = {
    kind: TypeAdapter(kind) for kind in (Question, Reply, Hello)
}

Carried = dict[tuple[int, bool], tuple[Params, ArrayRecord]]
"""Models as messages carry them, by the id of the model, which is kept with them."""


def make_message(
    question: Question, node: int, ttl: float, carried: Carried | None = None
) -> Message:
    """Return the message that asks a node.

    What several messages of a round carry is held once, in `carried`.
    """
    request, held = question.request, {} if carried is None else carried
    content = encode(question, letter=request.letters.get(question.name, b""))
    models = enumerate(request.models)
    named = {f"model-{j}": (model, request.roots.get(j)) for j, model in models if model}
    named |= {f"broadcast-{name}": (tensors, None) for name, tensors in request.broadcast.items()}
    for name, (params, root) in named.items():
        key = id(params), root is not None
        if key not in held:
            whole = params if root is None else {**params, ROOT: root}
            held[key] = params, arrays(whole)
        content[name] = held[key][1]
    return Message(content, node, KIND, ttl=ttl)


def encode(
    record: Question | Reply | Hello, update: Params | None = None, letter: bytes = b""
) -> RecordDict:
    """Return a message's content."""
    omitted = _AS_ARRAYS if isinstance(record, Question) else None
    text = _ADAPTERS[type(record)].dump_json(record, exclude=omitted).decode()
    content = RecordDict({"covey": ConfigRecord({"json": text})})
    if update is not None:
        content["update"] = arrays(update)
    if letter:
        content[LETTER] = with_letter(letter)
    return content


def question_of(content: RecordDict) -> Question:
    """Return what a server asks, on the node's side.

    Raises:
        InvalidMessageError: the message does not fit this version of covey.
    """
    question = _read(content, Question, inf)  # a node trusts its server
    if question.covey_version != __version__:
        raise InvalidMessageError(f"the server has covey {question.covey_version}")
    # of the models a client gets some, and with heads that it is in their roots
    names = [f"model-{j}" for j in range(len(question.request.available))]
    models = [_params(_record(content, name)) if name in content else {} for name in names]
    sent = (name.partition("broadcast-") for name in content)
    request = replace(
        question.request,
        roots={j: model.pop(ROOT) for j, model in enumerate(models) if ROOT in model},
        models=tuple(models),
        broadcast={
            name: _params(_record(content, f"{prefix}{name}"))
            for before, prefix, name in sent
            if prefix and not before
        },
        letters={question.name: letter_in(content, inf)},
    )
    return replace(question, request=request)


def hello_of(content: RecordDict, token: str, settings_hash: str) -> Hello:
    """Return a node's identity.

    Raises:
        InvalidMessageError: it cannot take part.
    """
    hello = _read(content, Hello)
    _check_answer(hello, token)
    if not hello.name:
        raise InvalidMessageError("it has no name: set one in its node.toml")
    if len(hello.name) > MAX_NAME or not hello.name.isprintable():
        raise InvalidMessageError(f"its name must be of at most {MAX_NAME} printable characters")
    shape = hello.shape
    if len(shape) > 8 or any(n < 1 for n in shape) or prod(shape) > MAX_NUMBERS:
        raise InvalidMessageError(
            f"its examples must have at most 8 dimensions and {MAX_NUMBERS} numbers each"
        )
    if not 0 <= hello.classes <= MAX_CLASSES:
        raise InvalidMessageError(f"its examples must be of at most {MAX_CLASSES} classes")
    if not (0 < hello.examples <= MAX_EXAMPLES and 0 <= hello.held_out <= MAX_EXAMPLES):
        raise InvalidMessageError(f"it must have at least 1 example, and at most {MAX_EXAMPLES}")
    if hello.agreement != settings_hash:
        raise InvalidMessageError(
            "its covey.toml differs in data, model, train, method, aggregation, risk, "
            "privacy or secrets.source: give it the server's"
        )
    return hello


def reply_of(content: RecordDict, pending: PendingQuestion) -> tuple[Reply, ClientResponse]:
    """Return what a node answered, found to be in order.

    Raises:
        InvalidMessageError: with what was expected.
    """
    question, request = pending.question, pending.question.request
    reply = _read(content, Reply)
    _check_answer(reply, question.token)
    if reply.name != question.name:
        raise InvalidMessageError("it answers for another client")
    assigned = question.context.assigned
    allowed = [j for j, offered in enumerate(request.available) if offered]
    allowed = allowed if assigned is None else [assigned]
    allowed = allowed if request.task not in (*OF_FEATURES, "masked") else [0]
    if reply.cluster not in allowed:
        raise InvalidMessageError(f"it must name one of the clusters {allowed}")
    if not (np.isfinite(reply.weight) and reply.weight > 0):
        raise InvalidMessageError("its weight must be a positive number")
    if reply.accuracy is not None and not 0 <= reply.accuracy <= 1:
        raise InvalidMessageError("its accuracy must lie in [0, 1]")
    answer = ClientResponse(pending.handle, reply.cluster, weight=reply.weight)
    if request.task in ("choose", "train"):
        answer = replace(answer, update=_update(content, request.models[reply.cluster]))
    elif request.task == "count":
        members = _counts(reply.members, pending.examples)
        answer = replace(
            answer, members=members, held_out=_counts(reply.held_out, pending.held_out)
        )
    elif request.task == "mean":
        mean = _update(content, {"mean": _like((request.width,), torch.float64)})["mean"]
        if fault := fault_of_mean(mean):
            raise InvalidMessageError(fault)
        answer = replace(answer, mean=mean)
    elif request.task == "sum":
        answer = replace(answer, sums=_sums(content, pending))
    elif request.sums is not None:  # the protocol reads what a client sends in a step of it
        answer = replace(answer, letter=letter_in(content, 8.0 * request.sums.length + MAX_SHARES))
    return reply, answer


def lengths_of(answers: Iterable[ClientResponse]) -> dict[Handle, Params]:
    """Return how long the features of each client's records are that sent their sums.

    The root of the mean square, the bias among it.
    """
    diagonals = {answer.handle: answer.sums.diagonal.double() for answer in answers if answer.sums}
    return {h: {"length": (d.sum() / d[-1]).sqrt()} for h, d in diagonals.items()}


def with_letter(letter: bytes) -> ArrayRecord:
    """Return the record that carries these bytes: as an array, which may be long."""
    return ArrayRecord({BYTES: Array("uint8", (len(letter),), "raw", letter)})


def letter_in(content: RecordDict, most: float) -> bytes:
    """Return the bytes that a message carries, as they are; none if there are none.

    Raises:
        InvalidMessageError: there are more than `most`, or something else is there.
    """
    record = content.get(LETTER)
    if record is None:
        return b""
    if not isinstance(record, ArrayRecord) or list(record) != [BYTES]:
        raise InvalidMessageError(f"it must hold bytes called {LETTER!r}")
    letter = record[BYTES].data
    if len(letter) > most:
        raise InvalidMessageError(f"it must hold at most {most} bytes")
    return letter


def _sums(content: RecordDict, pending: PendingQuestion) -> Sums:
    """Return a client's sums over its records."""
    width, classes = pending.question.request.width, pending.question.classes
    expected = {
        "gram": _like((width * (width + 1) // 2,), torch.int64),
        "targets": _like((width, classes), torch.int64),
    }
    sums = Sums(**_update(content, expected))
    if pending.question.context.digest not in ("", sums.digest()):
        raise InvalidMessageError("its sums must be those that it sent before: both are taken off")
    if fault := fault_of(sums, None if pending.examples == MAX_EXAMPLES else pending.examples):
        raise InvalidMessageError(fault)
    return sums


def _like(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Return a tensor without numbers, like the one that an answer must hold."""
    return torch.empty(shape, dtype=dtype, device="meta")


def _check_answer(answer: Hello | Reply, token: str) -> None:
    """Refuse an answer of another version, to another question, or of an error.

    Of an error only its kind is ever stored.
    """
    own_version, failed = __version__, answer.failed
    if answer.covey_version != own_version:
        raise InvalidMessageError(
            f"it has covey {answer.covey_version}, the server {own_version}: install the same"
        )
    if answer.token != token:
        raise InvalidMessageError("it is an answer to another question")
    if failed == Reason.SPENT.name:
        raise BudgetSpentError(Reason.SPENT.value)
    if failed in Reason.__members__:
        raise InvalidMessageError(f"it refused: {Reason[failed].value}")
    if failed:
        kind = failed if failed.isidentifier() and len(failed) <= MAX_NAME else "an error"
        raise InvalidMessageError(f"it failed with {kind}: look into the node's log")


def _update(content: RecordDict, start: Params) -> Params:
    record = _record(content, "update")
    if record.keys() != start.keys():
        raise InvalidMessageError("its update must have the model's names")
    for name, value in record.items():
        if len(value.data) > start[name].nbytes + HEADER:  # before anything is unpacked
            raise InvalidMessageError(f"its update of {name} must be as large as the model's")
        _check_header(value)
    update = _params(record)
    for name, value in update.items():
        expected = start[name]
        if value.shape != expected.shape or value.dtype != expected.dtype:
            raise InvalidMessageError(
                f"its update of {name} must be {expected.dtype} of shape {tuple(expected.shape)}"
            )
        if not torch.isfinite(value).all():
            raise InvalidMessageError(f"its update of {name} must hold finite numbers only")
    return update


def _check_header(value: Array) -> None:
    """Refuse an array that says that it is larger than what came, before it is unpacked."""
    try:
        file = BytesIO(value.data)
        version_ = read_magic(file)
        read = read_array_header_1_0 if version_ == (1, 0) else read_array_header_2_0
        shape, _, dtype = read(file, max_header_size=HEADER)
        size = prod(shape) * dtype.itemsize
        whole = size == len(value.data) - file.tell() and dtype.kind in "biuf"
    except Exception:  # whatever NumPy's readers raise
        whole = False
    if not whole:
        raise InvalidMessageError("its arrays must be readable")


def _counts(counts: Counts | None, most: int) -> np.ndarray:
    shape = (FOLDS, len(EDGES) + 1)
    rows = counts or ()
    fit = [len(row) for row in rows] == [shape[1]] * shape[0]
    if not fit or any(not 0 <= count <= MAX_COUNT for row in rows for count in row):
        raise InvalidMessageError(f"it must send counts of shape {shape}, from 0 to {MAX_COUNT}")
    if sum(map(sum, rows)) > most:
        raise InvalidMessageError(f"its counts must be of at most its {most} examples")
    return np.array(rows, dtype=np.int64)


def _read(content: RecordDict, kind: type[T], most: float = MAX_TEXT) -> T:
    try:
        record = content["covey"]
        text = str(record["json"]) if isinstance(record, ConfigRecord) else ""
        return _ADAPTERS[kind].validate_json(text if len(text) <= most else "")
    except (KeyError, ValueError, CoveyError):
        raise InvalidMessageError(f"it must be written as covey {__version__} does") from None


def arrays(params: Params) -> ArrayRecord:
    """Return a model as Flower carries it."""
    return ArrayRecord({n: Array(v.detach().contiguous().numpy()) for n, v in params.items()})


def _record(content: RecordDict, name: str) -> ArrayRecord:
    record = content.get(name)
    if not isinstance(record, ArrayRecord):
        raise InvalidMessageError(f"it must hold arrays called {name!r}")
    return record


def _params(record: ArrayRecord) -> dict[str, Tensor]:
    try:
        return {
            # what is read from bytes is an array of its own: seldom is a copy needed
            key: torch.from_numpy(np.require(value.numpy(), requirements=["C", "W"]))
            for key, value in record.items()
        }
    except Exception:  # NumPy's readers raise anything, and a lying shape MemoryError
        raise InvalidMessageError("its arrays must be readable") from None
