"""A client's side of a federation on Flower: its own file, answers and memory, and its app.

What a client accepts, its holdout, its seed and what it remembers lie in its own folder,
`node.toml` and `memory/`. The server is sent what `covey.flower.messages` lists, no more.
A process is started for every message: it imports nothing that only a server needs.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cache, cached_property
from importlib.metadata import version
from pathlib import Path
from urllib.parse import quote, unquote

import safetensors.torch
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable, Mod
from pydantic import TypeAdapter
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from covey.aggregation.base import ClientUpdate
from covey.algorithms.remote import ClientRequest, SumStep
from covey.algorithms.selection import choice_epsilon
from covey.algorithms.state import LAYERS, OWN_RECORDS, PERSONAL, with_final_losses
from covey.base.errors import ConfigError, CoveyError, RunError
from covey.base.figure import RiskEstimate
from covey.base.files import check_regular, checked, checked_json, read_bounded, replace_whole
from covey.base.names import Params
from covey.build.clients import Overrides
from covey.build.remote import ClientRuntime, ClusterChoice
from covey.build.run import ClientSecrets, client_runtime_of
from covey.components.parts import reference
from covey.config.settings import Config, load_config
from covey.data.arrays import read_client
from covey.data.clients import examples_of
from covey.data.examples import Examples
from covey.deploy.node import NodeFile
from covey.engine.kinds import FlowerNodes
from covey.flower.identity import InvalidMessageError
from covey.flower.masked import SumRounds, own_numbers
from covey.flower.messages import (
    OF_FEATURES,
    Counts,
    Hello,
    Question,
    Reply,
    arrays,
    encode,
    question_of,
)
from covey.membership.controls import copied
from covey.models.build import PassedModel
from covey.secure_sums.messages import RefusedError

UNREADABLE = (
    *(SafetensorError, OSError, CoveyError),
    *(ValueError, TypeError, KeyError, RecursionError),
)


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


_checked = TypeAdapter(NodeMemory).validate_python


@dataclass(frozen=True, slots=True)
class MemoryFolder:
    """What a client keeps of one run, in its own folder.

    What its objective goes on from has a file for every round, and the server says after
    which one to go on: the latest of which it took the client's update. So a round that is
    played again begins at the same tensors, and what was made of an update that was lost or
    refused is never looked at. Only a retraining that is given up half-way leaves the files
    of the rounds that it had played again as it wrote them.

    Attributes:
        path: the folder of all runs.
        run: names this one.
    """

    path: Path
    run: str

    def read(self) -> NodeMemory:
        """Return what the client keeps of the run.

        Raises:
            RunError: it cannot be read.
        """
        if not self._file.is_file():
            return NodeMemory()
        try:
            kept = json.loads(checked(read_bounded(self._file)))
            return _checked({each.name: kept[each.name] for each in fields(NodeMemory)})
        except UNREADABLE as error:
            raise _damaged(self._file, error) from error

    def write(self, memory: NodeMemory) -> None:
        """Keep it: before anything is sent, so that nothing is spent unnoticed."""
        self.path.mkdir(mode=0o700, exist_ok=True)
        replace_whole(self._file, checked_json(asdict(memory)), mode=0o600)

    def read_tensors(self, round_index: int | None) -> Mapping[str, Params]:
        """Return what the client kept for its objective in a round; None: nothing yet.

        Raises:
            RunError: it is not there any more, or cannot be read.
        """
        if round_index is None:
            return {}
        file = self._tensors(round_index)
        if not file.is_file():
            raise RunError(
                f"The server goes on from what this client kept in round {round_index}, "
                f"which must be in {file}, found no such file. Put it back."
            )
        found: dict[str, dict[str, Tensor]] = {}
        try:
            tensors = _whole(file)
        except UNREADABLE as error:
            raise _damaged(file, error) from error
        for name, value in tensors.items():
            key, _, parameter = name.partition("/")
            found.setdefault(unquote(key), {})[parameter] = value
        return found

    def write_tensors(self, round_index: int, kept: Mapping[str, Params]) -> None:
        """Keep what the objective goes on from, should the server take the update."""
        file = self._tensors(round_index)
        file.parent.mkdir(mode=0o700, exist_ok=True, parents=True)
        flat = {
            f"{quote(key, safe='')}/{name}": value.contiguous().clone()
            for key, tensors in kept.items()
            for name, value in tensors.items()
        }
        digest = {"sha256": _digest(flat)}
        replace_whole(file, safetensors.torch.save(flat, digest), mode=0o600)

    @property
    def _file(self) -> Path:
        return self.path / f"{self.run}.json"

    def _tensors(self, round_index: int) -> Path:
        return self.path / self.run / f"{round_index}.safetensors"


def _whole(file: Path) -> dict[str, Tensor]:
    """Return a file's tensors, once their hash is compared."""
    check_regular(file)
    with safe_open(file, framework="pt") as opened:
        tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
        known = (opened.metadata() or {}).get("sha256")
    if known != _digest(tensors):
        raise ValueError("it was changed: its checksum is another")
    return tensors


def _digest(tensors: Mapping[str, Tensor]) -> str:
    return hashlib.sha256(safetensors.torch.save(dict(tensors))).hexdigest()


def _damaged(file: Path, error: Exception) -> RunError:
    return RunError(
        f"{file} must hold what this client keeps of the run, as covey wrote it, but it "
        f"cannot be read ({type(error).__name__}: {error}). Restore the file; without it "
        f"what the client has spent on its choices is not known."
    )


log = logging.getLogger(__name__)

CHOOSING = ("choose", "settle", "compare")
"""Tasks in which a client takes a cluster by itself."""

SHARED_SETTINGS = ("data", "model", "train", "method", "aggregation", "risk", "privacy")
"""Sections of the settings that the server and every node must have alike."""

Train = Callable[[ClientRequest, int], Params]
"""How a client trains a given cluster's model: returns its local model."""


def shared_settings_hash(config: Config) -> str:
    """Return a hash of the settings that a server and its nodes must share."""
    settings = config.model_dump(mode="json", include=set(SHARED_SETTINGS))
    settings["data"].pop("dir")
    settings["aggregation"].pop("deniability_threshold", None)  # judges requests, not training
    settings["secrets"] = config.secrets.source  # the account rests on it
    text = json.dumps(settings, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


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
        remote = config.naming(engine=reference(FlowerNodes()))
        config = config.model_copy(update={"risk": remote.risk})
        if self.model is None:
            return config
        passed = config.naming(model=reference(PassedModel()))  # as the server names it
        return config.model_copy(update={"model": passed.model})

    def member(self, classes: int = 0) -> ClientRuntime:
        """Return the client with its examples, in a federation with so many classes."""
        file, given = self.file, self.examples
        if given is None and file.data:
            given = read_client(self.path.parent / file.data)
        own = ClientSecrets(
            name=file.name,
            seed=file.seed,
            preference=file.preference,
            holdout=file.holdout,
            classes=classes,
        )
        clients = None if given is None else {file.name: given}
        return client_runtime_of(self.config, own, Overrides(self.model, clients))

    def memory(self, run: str) -> MemoryFolder:
        """Return what the client keeps of a run."""
        if not run.isalnum():
            raise InvalidMessageError("the server must name its run")
        return MemoryFolder(self.path.parent / "memory", run)

    def sums(self, run: str) -> SumRounds:
        """Return the client in the rounds of secure sums of a run."""
        kept = self.memory(run).path / f"{run}.sums.json"
        simulated = self.examples is None and not self.file.data
        return SumRounds(self.path.parent, self.config, self.file, kept, simulated)


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
        elif question.sums is not None:
            content = _step(node, question, call, question.sums, train)
        else:
            content = encode(*_reply(node, question, call, train))
    except Exception as error:
        log.exception("Answering failed; the server learns the kind of error only.")
        refused = isinstance(error, RefusedError)
        kind = error.reason.name if refused else type(error).__name__
        versions = version("covey"), question.token
        if question.task == "hello":
            content = encode(Hello(*versions, "", "", (), images=False, classes=0, failed=kind))
        else:
            content = encode(Reply(*versions, question.name, failed=kind))
    return Message(content, reply_to=message)


def _hello(node: Node, question: Question) -> Hello:
    member = node.member()
    inputs = member.client.train.inputs
    if why := copied([member.client.train], [member.client.holdout]):
        log.warning("This client measures no risk: %s.", why)
    return Hello(
        covey_version=version("covey"),
        token=question.token,
        name=node.file.name,
        agreement=shared_settings_hash(node.config),
        shape=tuple(inputs.shape[1:]),
        images=inputs.dtype == torch.uint8,
        classes=member.classes,
        whole=inputs.dtype == torch.int64,
        examples=len(member.client.train) if member.tells_size else 1,
        held_out=len(member.client.holdout) if member.tells_size else 0,
    )


def _reply(
    node: Node, question: Question, request: ClientRequest, train: Train | None
) -> tuple[Reply, Params | None]:
    """Choose, train or count, as the question asks."""
    if question.name != node.file.name:
        raise InvalidMessageError("the question is for another client")
    member = node.member(question.classes).agreeing(request)
    node.sums(question.run).check_told(request, member)
    if request.task in OF_FEATURES:
        return _plainly(node, question), member.told(request, question.slip)
    folder = node.memory(question.run)
    memory, kept = folder.read(), folder.read_tensors(question.slip.memory_round)
    chosen = member.choose(request, question.slip, memory.risks)
    folder.write(_with_spent_epsilon(memory, node.config, request, chosen))
    model = request.models[chosen.cluster]  # its own one, or its own entries, if it has any
    in_use = kept.get(PERSONAL, {**model, **kept.get(LAYERS, {})})
    tells, file = request.task in (*CHOOSING, "train"), node.file
    threshold = member.client.preference.risk_threshold
    reply = replace(
        _plainly(node, question),
        cluster=chosen.cluster,
        accuracy=member.accuracy(in_use) if tells and file.tell_accuracy else None,
        above=chosen.above(threshold) if tells and file.tell_violation else None,
    )
    if request.task == "count":
        inside, outside = member.count(request, chosen.cluster)
        return replace(reply, members=_plain(inside), held_out=_plain(outside)), None
    if request.task == "settle" and OWN_RECORDS in kept:
        losses = member.losses(request.models[chosen.cluster])
        folder.write_tensors(request.round_index, with_final_losses(kept, losses))
    if request.task not in ("choose", "train"):
        return reply, None
    made = _trained(node, member, question, request, chosen.cluster, train)
    return replace(reply, weight=made.weight), made.update


def _trained(
    node: Node,
    member: ClientRuntime,
    question: Question,
    request: ClientRequest,
    cluster: int,
    train: Train | None,
) -> ClientUpdate:
    """Train, and keep what the objective goes on from."""
    folder = node.memory(question.run)
    kept = folder.read_tensors(question.slip.memory_round)
    made = member.train(request, cluster, train, kept)
    if made.kept is not None and request.round_index >= 0:
        # an objective that keeps nothing new leaves its memory as it was
        folder.write_tensors(request.round_index, made.kept or kept)
    return made


def _step(
    node: Node, question: Question, request: ClientRequest, asked: SumStep, train: Train | None
) -> RecordDict:
    """Take a step of a round of secure sums."""
    if question.name != node.file.name:
        raise InvalidMessageError("the question is for another client")
    given = question.slip.given or 0

    @cache
    def member() -> ClientRuntime:
        return node.member(question.classes).agreeing(request)

    def trained() -> ClientUpdate:
        folder = node.memory(question.run)
        memory = folder.read()
        folder.write(replace(memory, updates=memory.updates + 1))
        return _trained(node, member(), question, request, given, train)

    own = own_numbers(member, request, trained)
    letter = request.letters[question.name]
    rounds = node.sums(question.run)
    said = rounds.answer(asked, question.slip.session, letter, own)
    return encode(_plainly(node, question), letter=said)


def _plainly(node: Node, question: Question) -> Reply:
    """Return an answer that tells nothing but whether the client asks to leave."""
    return Reply(version("covey"), question.token, node.file.name, leave=node.file.leave)


def _with_spent_epsilon(
    memory: NodeMemory, config: Config, request: ClientRequest, chosen: ClusterChoice
) -> NodeMemory:
    """Return what the client keeps after it has answered."""
    (context,) = request.contexts.values()
    noise, free = config.privacy.selection_noise, context.given is None
    chooses = free and request.task in CHOOSING
    return NodeMemory(
        risks=memory.risks if chosen.known == context.risks else chosen.known,
        updates=memory.updates + (request.task in ("choose", "train")),
        choices_epsilon=memory.choices_epsilon
        + (choice_epsilon(noise) if chooses and noise > 0 else 0.0),
    )


def _plain(counts: object) -> Counts:
    return tuple(tuple(map(int, row)) for row in counts)  # type: ignore[attr-defined]


Model = Callable[[], nn.Module]
Pair = tuple[Tensor, Tensor]


def covey_mod(model: Model | None = None, data: Callable[[Context], Pair] | None = None) -> Mod:
    """Return what makes a client app choose its cluster, and answer a covey server.

    Args:
        model: builds a fresh module; None: the network that covey.toml names.
        data: the client's (inputs, labels); None: those that its node.toml names.

    The app's own training function is called with the chosen model as `arrays`, and
    returns the trained one as `arrays`, as in Flower's examples. Messages that do not
    come from a covey server are passed on.
    """

    def mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        if not message.has_content() or "covey" not in message.content:
            return call_next(message, context)

        def train(request: ClientRequest, cluster: int) -> Params:
            # the app's own function sees an ordinary Flower message
            recipe = ConfigRecord({"lr": request.recipe.learning_rate})
            model = arrays(request.models[cluster])
            message.content = RecordDict({"arrays": model, "config": recipe})
            answer = call_next(message, context).content["arrays"]
            if not isinstance(answer, ArrayRecord):
                raise ConfigError(
                    f"The training function must return its model as 'arrays', found "
                    f"{type(answer).__name__}. Return it as in Flower's examples."
                )
            return dict(answer.to_torch_state_dict())

        return answer_message(message, lambda: _node_of(context, model, data), train)

    return mod


def _node_of(context: Context, model: Model | None, data: Callable[[Context], Pair] | None) -> Node:
    """Return the client whose node.toml the context names.

    A node in a simulation of Flower's is a number and has no settings of its own: the
    run says where its file is, with {partition-id} in the path.
    """
    file = context.node_config.get("file")
    if file is None and "partition-id" in context.node_config:
        file = str(context.run_config.get("file", "")).format_map(context.node_config)
    if not isinstance(file, str) or not file:
        raise ConfigError(
            "A node is told where its node.toml is by --node-config 'file=\"PATH\"', and a "
            'simulated one by file = "PATH/client-{partition-id:05}/node.toml" in the '
            f"app's settings, found {file!r}. Start it as `covey deploy init` writes it."
        )
    return Node(Path(file), model, examples_of(file, data(context)) if data else None)


client_app = ClientApp()


@client_app.train()
def _answer(message: Message, context: Context) -> Message:
    """Answer a covey server, and train as the settings say."""
    return answer_message(message, lambda: _node_of(context, None, None))
