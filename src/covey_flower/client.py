"""A client's side of a federation on Flower: its own file, its answers, and its app.

What a client accepts, its holdout, its seed and what it remembers lie in its own folder,
`node.toml` and `memory/`. The server is sent what `covey_flower.messages` lists, no more.
A process is started for every message: it imports nothing that only a server needs.
"""

import hashlib
import json
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib.metadata import version
from pathlib import Path

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable, Mod
from torch import Tensor, nn

from covey import ClientUpdate, Config, ConfigError, Examples, Params, load_config
from covey.aggregation.mean import count_of_numbers
from covey.algorithms.client_requests import ClientRequest
from covey.algorithms.selection import choice_epsilon
from covey.algorithms.state import LAYERS, PERSONAL
from covey.base.components import reference
from covey.base.names import Released, SummedUp
from covey.data.arrays import examples_of, read_client
from covey.membership.controls import copied
from covey.models.build import PassedModel
from covey.models.feature_store import FeatureStore
from covey.secure_sums.messages import Reason, RefusedError
from covey.settings.clients import Overrides
from covey.settings.privacy import budget_weight
from covey_flower.allowance import CHOOSING, Allowance
from covey_flower.client_runtime import ClientRuntime, ClusterChoice, client_runtime_of
from covey_flower.engine import FlowerNodes, shared_settings_hash
from covey_flower.identity import InvalidMessageError
from covey_flower.masked import OwnNumbers, SumRounds
from covey_flower.memory import MemoryFolder, NodeMemory, OwnBudget
from covey_flower.messages import (
    OF_FEATURES,
    Counts,
    Hello,
    Question,
    Reply,
    arrays,
    encode,
    question_of,
)
from covey_flower.node_file import NodeFile

log = logging.getLogger("covey.flower")

_BARE = "What has no noise costs more than any epsilon_limit in node.toml."

Train = Callable[[ClientRequest, int], Params]
"""How a client trains one cluster's model: returns its local model."""


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
        file, examples = self.file, self.examples
        if examples is None and file.data:
            examples = read_client(self.path.parent / file.data, self.config.data.label)
        clients = None if examples is None else {file.name: examples}
        store = None if file.leave else FeatureStore.at(self.features)
        passed = Overrides(self.model, clients, features=store)
        member = client_runtime_of(self.config, file, passed, classes)
        if member.records is not None and member.records.store is not None:
            own = {file.name: (member.client.train, member.client.holdout)}
            deque(member.records.prepare(own), maxlen=0)
        return member

    @property
    def features(self) -> Path:
        """Where it keeps what a frozen network makes of its records."""
        return self.path.parent / "memory" / "features.sqlite"

    def memory(self, run: str) -> MemoryFolder:
        """Return what the client keeps of a run."""
        if not run.isalnum():
            raise InvalidMessageError("the server must name its run")
        return MemoryFolder(self.path.parent / "memory", run)

    @property
    def allowance(self) -> Allowance:
        """How often the client still answers in runs of these settings."""
        name = f"answered-{shared_settings_hash(self.config)[:16]}.json"
        return Allowance(self.path.parent / "memory" / name, self.config, self.file.repeats)

    def release(self, of: SummedUp, numbers: int, *, now: bool = True) -> None:
        """Take what is to be sent off the client's own budget, if it has one.

        Args:
            of: what it is.
            numbers: how many; 0: it has no noise, which no budget allows.
            now: whether it is sent now; else it is only seen whether it may be.

        Raises:
            RefusedError: its budget allows no more.
        """
        plan, limit, weight = self.config.privacy_plan, self.file.epsilon_limit, 1.0
        if limit is None:
            return
        if plan.sums_gradients or not (plan.noise and numbers):
            raise RefusedError(Reason.SPENT, "server", _BARE)
        if of == "updates" and plan.clients_add_noise:
            weight = budget_weight(plan, numbers, limit) or 1.0
        self._spend((plan.by, plan.hidden_by(numbers, weight)), limit, now=now)

    def release_choice(self, noise: float) -> None:
        """Take a choice of a cluster off the client's own budget, if it has one.

        Args:
            noise: b of `report_noisy_min`; 0: none, which no budget allows.

        Raises:
            RefusedError: its budget allows no more.
        """
        limit = self.file.epsilon_limit
        if limit is None:
            return
        if not noise:
            raise RefusedError(Reason.SPENT, "server", _BARE)
        self._spend(("choice", choice_epsilon(noise)), limit, now=True)

    def _spend(self, released: Released, limit: float, *, now: bool) -> None:
        file = self.path.parent / "memory" / "budget.json"
        OwnBudget(file, limit, self.config.privacy_plan.delta).spend(released, now=now)

    def sums(self, run: str) -> SumRounds:
        """Return the client in the rounds of secure sums of a run."""
        sums_file = self.memory(run).path / f"{run}.sums.json"
        simulated = self.examples is None and not self.file.data
        return SumRounds(self.path.parent, self.config, self.file, sums_file, simulated)


def answer_message(
    message: Message, load: Callable[[], Node], train: Train | None = None
) -> Message:
    """Return the client's answer to a question; an error's text never leaves the node.

    Args:
        message: the question.
        load: reads the client.
        train: how it trains; None: as the settings say.
    """
    question = Question("", "", "", "", ClientRequest("hello"))
    try:
        question = question_of(message.content)
        node = load()
        is_hello = question.request.task == "hello"
        content = _hello(node, question) if is_hello else _reply(node, question, train)
    except Exception as error:
        log.exception("Answering failed; the server learns the kind of error only.")
        refused = isinstance(error, RefusedError)
        kind = error.reason.name if refused else type(error).__name__
        versions = version("covey"), question.token
        if question.request.task == "hello":
            content = encode(Hello(*versions, "", "", (), images=False, classes=0, failed=kind))
        else:
            content = encode(Reply(*versions, question.name, failed=kind))
    return Message(content, reply_to=message)


def _hello(node: Node, question: Question) -> RecordDict:
    member = node.member()
    inputs, columns = member.client.train.inputs, member.client.train.columns
    if why := copied([member.client.train], [member.client.holdout]):
        log.warning("This client measures no risk: %s.", why)
    hello = Hello(
        covey_version=version("covey"),
        token=question.token,
        name=node.file.name,
        agreement=shared_settings_hash(node.config),
        shape=tuple(inputs.shape[1:]),
        images=inputs.dtype == torch.uint8,
        classes=member.classes,
        whole=inputs.dtype == torch.int64,
        examples=len(member.client.train) if member.reports_size else 1,
        held_out=len(member.client.holdout) if member.reports_size else 0,
        columns=hashlib.sha256(json.dumps(columns).encode()).hexdigest() if columns else "",
    )
    return encode(hello)


def _reply(node: Node, question: Question, train: Train | None) -> RecordDict:
    """Choose, train, count or take a step of secure sums, as the question asks."""
    file, request, context = node.file, question.request, question.context
    if question.name != file.name:
        raise InvalidMessageError("the question is for another client")
    node.allowance.check(request, context)
    # reveals nothing but whether the client asks to leave
    reply = Reply(version("covey"), question.token, file.name, leave=file.leave)
    for store in FeatureStore.all_at(node.features) if file.leave else ():
        store.forget(file.name)

    @cache  # which a step of secure sums may do without
    def member() -> ClientRuntime:
        return node.member(question.classes).agreeing(request)

    folder, sums = node.memory(question.run), node.sums(question.run)

    def trained(cluster: int) -> ClientUpdate:
        """Train, and keep what the objective goes on from."""
        memory_tensors = folder.read_tensors(context.memory_round)
        made = member().train(request, cluster, train, memory_tensors)
        if made.kept is not None and request.round_index >= 0:
            # an objective that keeps nothing new leaves its memory as it was
            folder.write_tensors(request.round_index, made.kept or memory_tensors)
        return made

    if request.sums is not None:

        def counted() -> ClientUpdate:
            memory = folder.read()
            folder.write(replace(memory, updates=memory.updates + 1))
            return trained(context.assigned or 0)

        of, numbers = request.sums.of, request.sums.length - 1
        if request.sums.step == "keys":
            node.release(of, numbers, now=False)

        def pay() -> None:
            node.allowance.answer(request, context, member().client, lambda _: ClusterChoice(0, ()))
            node.release(of, numbers)

        own, letter = OwnNumbers(member, request, counted, pay), request.letters[question.name]
        return encode(reply, letter=sums.answer(request.sums, context.session, letter, own))
    sums.check_request(request, member())
    if request.task in OF_FEATURES:
        node.release("sums", 0)
        return encode(reply, member().feature_sums(request, context))
    memory_tensors = folder.read_tensors(context.memory_round)

    def choose(before: int | None) -> ClusterChoice:
        memory = folder.read()
        own = context if before is None else replace(context, assigned=before)
        is_free = own.assigned is None and len(request.models) > 1
        noise = node.config.privacy_plan.choice_noise if request.task in CHOOSING else 0.0
        if is_free:
            node.release_choice(noise)
        chosen = member().choose(request, own, memory.risks)
        spent = choice_epsilon(noise) if is_free and noise else 0.0
        folder.write(
            NodeMemory(
                risks=memory.risks if chosen.known == context.risks else chosen.known,
                updates=memory.updates + (request.task in ("choose", "train")),
                choices_epsilon=memory.choices_epsilon + spent,
            )
        )
        return chosen

    chosen = node.allowance.answer(request, context, member().client, choose)
    model = request.models[chosen.cluster]  # its own one, or its own entries, if it has any
    in_use = memory_tensors.get(PERSONAL, {**model, **memory_tensors.get(LAYERS, {})})
    reports = request.task in (*CHOOSING, "train")
    threshold = member().client.preference.risk_threshold
    reply = replace(
        reply,
        cluster=chosen.cluster,
        accuracy=member().accuracy(in_use) if reports and file.report_accuracy else None,
        above=chosen.above(threshold) if reports and file.report_violation else None,
    )
    if request.task == "count":
        node.release("counts", 0)
        inside, outside = member().count(request, chosen.cluster)
        return encode(replace(reply, members=_plain(inside), held_out=_plain(outside)))
    if request.task not in ("choose", "train"):
        return encode(reply)
    node.release("updates", count_of_numbers(model) - 1)
    made = trained(chosen.cluster)
    return encode(replace(reply, weight=made.weight), made.update)


def _plain(counts: object) -> Counts:
    return tuple(tuple(map(int, row)) for row in counts)  # type: ignore[attr-defined]


ModelFactory = Callable[[], nn.Module]
Pair = tuple[Tensor, Tensor]


def covey_mod(
    model: ModelFactory | None = None, data: Callable[[Context], Pair] | None = None
) -> Mod:
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
                    f"The training function must return its model as 'arrays', as in "
                    f"Flower's examples, found {type(answer).__name__}: return an ArrayRecord."
                )
            return dict(answer.to_torch_state_dict())

        return answer_message(message, lambda: _node_of(context, model, data), train)

    return mod


def _node_of(
    context: Context, model: ModelFactory | None, data: Callable[[Context], Pair] | None
) -> Node:
    """Return the client whose node.toml the context names.

    A node in a simulation of Flower's is a number and has no settings of its own: the
    run says where its file is, with {partition-id} in the path.
    """
    file = context.node_config.get("file")
    if file is None and "partition-id" in context.node_config:
        file = str(context.run_config.get("file", "")).format_map(context.node_config)
    if not isinstance(file, str) or not file:
        raise ConfigError(
            "A node's --node-config must be 'file=\"PATH\"', of its node.toml, and a simulated "
            'one\'s app must set file = "PATH/client-{partition-id:05}/node.toml", found '
            f"{file!r}: start the node as `covey deploy init` writes it."
        )
    return Node(Path(file), model, examples_of(file, data(context)) if data else None)


client_app = ClientApp()


@client_app.train()
def _answer(message: Message, context: Context) -> Message:
    """Answer a covey server, and train as the settings say."""
    return answer_message(message, lambda: _node_of(context, None, None))
