"""A client's side of a federation on Flower: its own file, its answers, its memory.

What a client accepts, its holdout, its seed and what it remembers lie in its own folder,
`node.toml` and `memory/`. The server is sent what `covey.flower.messages` lists, no more.
"""

import hashlib
import json
import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from flwr.app import Message
from torch import nn

from covey.algorithms import ClientRequest
from covey.atomic_io import replace_whole
from covey.build import (
    ClientRuntime,
    ClientSecrets,
    ClusterChoice,
    Overrides,
    client_runtime_of,
)
from covey.clustering import choice_epsilon
from covey.components import reference
from covey.config import Config, load_config
from covey.data import Examples, read_client
from covey.deploy import NodeFile
from covey.flower.messages import (
    Counts,
    Hello,
    InvalidMessageError,
    Question,
    Reply,
    encode,
    question_of,
)
from covey.membership import RiskEstimate
from covey.models.passed import PassedModel
from covey.types import Params

__all__ = ["Node", "Train", "answer_message", "shared_settings_hash"]

log = logging.getLogger(__name__)

SHARED_SETTINGS = ("data", "model", "train", "method", "merge", "redteam", "privacy")
"""Sections of the settings that the server and every node must have alike."""

Train = Callable[[ClientRequest, int], Params]
"""How a client trains a given cluster's model: returns its local model."""


def shared_settings_hash(config: Config) -> str:
    """Return a hash of the settings that a server and its nodes must share."""
    settings = config.model_dump(mode="json", include=set(SHARED_SETTINGS))
    settings["data"].pop("dir")
    settings["merge"].pop("deniability_threshold")  # judges requests, not training
    settings["secrets"] = config.secrets.source  # the account rests on it
    text = json.dumps(settings, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class NodeMemory:
    """What a client stores locally about one run.

    Attributes:
        risks: what it has found out about each cluster.
        updates: how many it has sent; replayed rounds and lost answers count.
        choices_epsilon: spent on its choices so far, sum of 2 / selection_noise each; 0
            where choices are not hidden by noise.
    """

    risks: tuple[RiskEstimate | None, ...] = ()
    updates: int = 0
    choices_epsilon: float = 0.0


@dataclass(frozen=True)
class Node:
    """One client: its file, and the parts that a program may pass by hand.

    Attributes:
        path: of its `node.toml`.
        model: builds a fresh module; None: the network that the settings name.
        examples: its own; None: those that its file names.
    """

    path: Path
    model: Callable[[], nn.Module] | None = None
    examples: Examples | None = None

    @cached_property
    def file(self) -> NodeFile:
        """What the client's file says."""
        return NodeFile.read(self.path)

    @cached_property
    def config(self) -> Config:
        """The federation's settings, as this client has them."""
        config = load_config(self.path.parent / self.file.config, [])
        if self.model is None:
            return config
        own = config.model.model_copy(update={"name": reference(PassedModel())})
        return config.model_copy(update={"model": own})

    def member(self, classes: int = 0) -> ClientRuntime:
        """Return the client with its examples, in a federation with so many classes."""
        file, given = self.file, self.examples
        if given is None and file.data:
            given = read_client(self.path.parent / file.data)
        own = ClientSecrets(
            file.name, file.seed, file.preference, file.holdout, classes
        )
        clients = None if given is None else {file.name: given}
        return client_runtime_of(self.config, own, Overrides(self.model, clients))

    def recall(self, run: str) -> NodeMemory:
        """Return what the client keeps of a run."""
        path = self._memory(run)
        if not path.is_file():
            return NodeMemory()
        kept = json.loads(path.read_text(encoding="ascii"))
        risks = tuple(map(_estimate, kept["risks"]))
        return NodeMemory(risks, kept["updates"], kept["choices_epsilon"])

    def remember(self, run: str, memory: NodeMemory) -> None:
        """Keep it: before anything is sent, so that nothing is spent unnoticed."""
        path = self._memory(run)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        text = json.dumps(asdict(memory))
        replace_whole(path, text.encode("ascii"), mode=0o600)

    def _memory(self, run: str) -> Path:
        if not run.isalnum():
            raise InvalidMessageError("the server must name its run")
        return self.path.parent / "memory" / f"{run}.json"


def answer_message(
    message: Message, load: Callable[[], Node], train: Train | None = None
) -> Message:
    """Return the client's answer to a question; an error's text never leaves the node.

    Args:
        message: the question.
        load: reads the client.
        train: how it trains; None: as the settings say.
    """
    question = Question("", "", "", "", "hello")
    try:
        question, call = question_of(message.content)
        node = load()
        if question.task == "hello":
            content = encode(_hello(node, question))
        else:
            content = encode(*_reply(node, question, call, train))
    except Exception as error:
        log.exception("Answering failed; the server learns the kind of error only.")
        content = encode(_failed(question, type(error).__name__))
    return Message(content, reply_to=message)


def _hello(node: Node, question: Question) -> Hello:
    member = node.member()
    inputs = member.client.train.inputs
    return Hello(
        covey_version=version("covey"),
        token=question.token,
        name=node.file.name,
        agreement=shared_settings_hash(node.config),
        shape=tuple(inputs.shape[1:]),
        images=inputs.dtype == torch.uint8,
        classes=member.classes,
        whole=inputs.dtype == torch.int64,
    )


def _failed(question: Question, kind: str) -> Hello | Reply:
    if question.task != "hello":
        return Reply(version("covey"), question.token, question.name, failed=kind)
    return Hello(version("covey"), question.token, "", "", (), False, 0, failed=kind)  # noqa: FBT003


def _reply(
    node: Node, question: Question, request: ClientRequest, train: Train | None
) -> tuple[Reply, Params | None]:
    """Choose, train or count, as the question asks."""
    if question.name != node.file.name:
        raise InvalidMessageError("the question is for another client")
    member = node.member(question.classes)
    memory = node.recall(question.run)
    chosen = member.choose(request, question.slip, memory.risks)
    node.remember(
        question.run, _with_spent_epsilon(memory, node.config, request, chosen)
    )
    reply = replace(
        _reply_of_choice(node, member, request, chosen), token=question.token
    )
    if request.task == "count":
        inside, outside = member.count(request, chosen.cluster)
        return replace(reply, members=_plain(inside), held_out=_plain(outside)), None
    if request.task not in ("choose", "train"):
        return reply, None
    update, weight = member.train(request, chosen.cluster, train)
    return replace(reply, weight=weight), update


def _estimate(kept: Any) -> RiskEstimate | None:  # noqa: ANN401 - as JSON has it
    """Return what a client found earlier; covey 0.1 wrote down a row of four values."""
    if kept is None:
        return None
    if isinstance(kept, dict):
        return RiskEstimate(**kept)
    risk, standard_error, round_index, inside = kept
    return RiskEstimate(risk, standard_error, round_index=round_index, inside=inside)


def _with_spent_epsilon(
    memory: NodeMemory, config: Config, request: ClientRequest, chosen: ClusterChoice
) -> NodeMemory:
    """Return what the client keeps after it has answered."""
    (context,) = request.contexts.values()
    noise, free = config.privacy.selection_noise, context.given is None
    chooses = free and request.task in ("choose", "settle")
    return NodeMemory(
        risks=memory.risks if chosen.known == context.risks else chosen.known,
        updates=memory.updates + (request.task in ("choose", "train")),
        choices_epsilon=memory.choices_epsilon
        + (choice_epsilon(noise) if chooses and noise > 0 else 0.0),
    )


def _reply_of_choice(
    node: Node, member: ClientRuntime, request: ClientRequest, chosen: ClusterChoice
) -> Reply:
    """Return what a client says whatever it is asked, as far as its file lets it."""
    file, params = node.file, request.models[chosen.cluster]
    tells = request.task in ("choose", "settle", "train")
    threshold = member.client.preference.risk_threshold
    return Reply(
        covey_version=version("covey"),
        token="",
        name=file.name,
        cluster=chosen.cluster,
        accuracy=member.accuracy(params) if tells and file.tell_accuracy else None,
        above=chosen.above(threshold) if tells and file.tell_violation else None,
        leave=file.leave,
    )


def _plain(counts: object) -> Counts:
    return tuple(tuple(map(int, row)) for row in counts)  # type: ignore[attr-defined]
