"""Flower apps of the server and of a client, and a grid in one process.

A grid in one process: client apps called as functions, without sockets or Ray.

For tests, and for a look at a federation before there is one. Messages are the same, and
so is everything on both sides; only their way is not.

A client's side of a federation on Flower, as a Flower app and for an app of one's own.

A process is started for every message: it imports nothing that only a server needs.
"""

import logging
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from flwr.app import ArrayRecord, ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable, Mod
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid, ServerApp
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity
from torch import Tensor, nn

from covey.algorithms.remote import ClientRequest
from covey.api import load
from covey.base.errors import ConfigError
from covey.base.history import History
from covey.base.names import ClientName, Params, round_number
from covey.build.aggregators import anonymity_of, noise_on_clients
from covey.build.clients import Overrides, attested_organisations
from covey.build.run import build_run
from covey.components.registry import only_from, reference
from covey.config.settings import Config, load_config
from covey.engine.kinds import FlowerNodes
from covey.flower.messages import arrays
from covey.flower.node import Node, answer_message, shared_settings_hash
from covey.flower.server import AdmissionPolicy, FlowerServer
from covey.ledger.store import Ledger
from covey.models.build import PassedModel
from covey.runs.run import Run as CoveyRun
from covey.runs.sweeps import tracked
from covey.runtime.folder import RunFolder
from covey.runtime.inputs import FederationMetadata
from covey.runtime.loop import continue_run
from covey.runtime.session import open_session

SUPERLINK = 1
"""The node id of a SuperLink."""

FAILED = 2
"""The code of an error inside a client app."""


def outside_a_run() -> None:
    """Let messages be made where no SuperLink has given this process a task."""
    TaskIdentity.run_id = 1
    TaskIdentity.node_id = SUPERLINK
    TaskIdentity.task_id = 1


def reply_from(app: ClientApp, message: Message, context: Context) -> Message:
    """Return a client app's answer, or the error that a SuperNode would send for it."""
    try:
        return app(message, context)
    except Exception as error:
        return Message(Error(FAILED, type(error).__name__), reply_to=message)


Wire = Callable[[Message, Message], list[Message]]
"""What becomes of a reply on its way: (question, reply) -> what arrives."""


class InProcessGrid(Grid):
    """Nodes that answer in the process of the server, one after the other.

    Args:
        app: the client app of all nodes.
        files: each node's `node.toml`, by node id.
        wire: what becomes of replies; none are changed by default.
        identities: what a SuperLink would vouch for, such as `public_key`, by node id.
    """

    def __init__(
        self,
        app: ClientApp,
        files: Mapping[int, str],
        wire: Wire = lambda _, reply: [reply],
        identities: Mapping[int, NodeInfo] = MappingProxyType({}),
    ) -> None:
        outside_a_run()
        self.files = dict(files)
        self._app = app
        self._wire = wire
        self.identities = dict(identities)
        self._sent = 0
        self._arrived: list[Message] = []

    def set_run(self, run: Run) -> None:
        """Do nothing: there is one run."""

    @property
    def run(self) -> Run:
        """The only run."""
        return Run.create_empty(1)

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """Return a message."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        """Return the nodes that are there."""
        return list(self.files)

    def get_nodes(self) -> Iterable[NodeInfo]:
        """Return the nodes that are there, with what is known of them."""
        return [self.identities.get(node, NodeInfo(node_id=node)) for node in self.get_node_ids()]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Let each node answer at once; one that is not there is silent."""
        pushed: list[str] = []
        for message in messages:
            self._sent += 1
            pushed.append(f"message-{self._sent}")
            message.metadata.__dict__["_message_id"] = pushed[-1]
            node, came = message.metadata.dst_node_id, list[Message]()
            if node in self.files:
                context = Context(1, node, {"file": self.files[node]}, RecordDict(), {})
                reply = reply_from(self._app, message, context)
                came = self._wire(message, reply)
            self._arrived += came or self.silence(message)
        return pushed

    def silence(self, message: Message) -> list[Message]:
        """Return what comes of a question that nothing comes of: that nobody is there."""
        nobody = Error(code=0, reason="the node is not there")
        return [Message(nobody, reply_to=message)]

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:  # noqa: ARG002
        """Return the answers that came, each once."""
        arrived, self._arrived = self._arrived, []
        return arrived

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Refuse: a server asks, and then waits as long as it likes."""
        raise NotImplementedError


log = logging.getLogger("covey.flower")

Model = Callable[[], nn.Module]


server_app = ServerApp()


@server_app.main()
def _main(grid: Grid, context: Context) -> None:
    """Play the run that the app's configuration names, or carry it on."""
    _log_through_flower()
    told = {key: str(value) for key, value in context.run_config.items()}
    names = frozenset(filter(None, told.get("names", "").split(",")))
    federated = Federated(
        told["config"],
        invited=names,
        timeout=float(told["timeout"]),
        binds_names=told.get("binds-names", "True") == "True",
    )
    federated.start(grid, told["out"], int(told["nodes"]))


@dataclass(frozen=True, slots=True)
class Federated:
    """A covey run whose clients are Flower nodes; it starts where a strategy would.

    Attributes:
        config: the settings, or their TOML file.
        model: builds a fresh module; None: the network that the settings name.
        invited: names of clients; empty: whoever the SuperLink lets in.
        timeout: seconds that a round waits for a node.
        binds_names: whether a client's name belongs to the key of the node that first came
            with it. Not where nodes have no keys that last (`--insecure`).
    """

    config: Config | str | Path
    model: Model | None = None
    invited: frozenset[ClientName] = frozenset()
    timeout: float = 600.0
    binds_names: bool = True

    def start(self, grid: Grid, out: str | Path, nodes: int = 2) -> CoveyRun:
        """Play the run in the folder `out` to its end; carry it on if it was begun.

        Waits until `nodes` nodes are there, less those that have left or ask to. Rounds
        keep their numbers over restarts.

        Raises:
            CoveyError: something does not fit.
        """
        folder = self._folder(Path(out))
        with only_from(folder.origins()):
            config = folder.checked_config()
        roster = FederationMetadata.of(folder) or FederationMetadata(
            secrets.token_hex(8), None, self._home()
        )
        hiding, organisations = anonymity_of(config), attested_organisations(config)
        if organisations and not self.binds_names:
            raise ConfigError(
                "population.organisations is attested for keys that are registered, found "
                "nodes without (--insecure). Make a deployment with keys, or leave it out."
            )
        terms = AdmissionPolicy(
            run=roster.run,
            settings_hash=shared_settings_hash(config),
            invited=self.invited,
            timeout=self.timeout,
            compares_norms=not noise_on_clients(config),
            equal_weights=config.merge.weights == "equal",
            hides_sizes=config.privacy.secure_sums,
            keys=_keys(folder),
            binds_names=self.binds_names,
            organisations=frozenset(organisations),
            attested_only=hiding is not None and hiding.min_organisations > 1,
        )
        federation = FlowerServer(grid, terms, roster.profile)
        left, leaving = _departures(folder)
        fewest = hiding.min_anonymity if hiding and roster.profile is None else 1
        federation.wait_for(max(nodes - left - len(leaving), fewest), leaving)
        replace(roster, profile=federation.profile).write(folder)
        run = build_run(config, Overrides(model=self.model, client_backend=federation))
        with open_session(run, folder) as session, tracked(folder, _report) as told:
            continue_run(
                session,
                config.rounds,
                told,
                on_answer=lambda done: log.info("%s", done.message),
            )
        log.info("Finished. `covey report %s` shows it.", folder.path)
        return load(folder.path)

    def _folder(self, out: Path) -> RunFolder:
        """Return the run's folder, a new one if there is none."""
        if (out / "config.toml").is_file():
            return RunFolder.existing(out)
        config = self.config
        if not isinstance(config, Config):
            config = load_config(config)
        names = {"engine": reference(FlowerNodes())}
        if self.model is not None:
            names["model"] = reference(PassedModel())
        return RunFolder.create(out, config.naming(**names))

    def _home(self) -> str:
        """Return the folder of the deployment, if there is one."""
        if isinstance(self.config, Config):
            return ""
        return str(Path(self.config).resolve().parent)


def _keys(folder: RunFolder) -> Mapping[ClientName, str]:
    """Return the keys that a run's clients are known by."""
    if not Ledger.exists(folder.ledger):
        return {}
    with Ledger.read(folder.ledger) as ledger:
        return ledger.keys()


def _departures(folder: RunFolder) -> tuple[int, frozenset[ClientName]]:
    """Return how many clients have left a run, and which requests are not answered yet.

    Nobody waits for either.
    """
    if not Ledger.exists(folder.ledger):
        return 0, frozenset()
    with Ledger.read(folder.ledger) as ledger:
        left, names = len(ledger.tombstones()), ledger.names()
        asked = {r.handle for r in ledger.requests() if r.state == "pending"}
    words = {word.client for word in folder.queued_requests()}
    leaving = (name for h, name in names.items() if h in asked or name in words)
    return left, frozenset(leaving)


def _log_through_flower() -> None:
    """Log covey's messages through Flower's logger."""
    theirs, ours = logging.getLogger("flwr"), logging.getLogger("covey")
    ours.handlers, ours.level, ours.propagate = theirs.handlers, logging.INFO, False


def _report(history: History) -> None:
    """Log the latest round."""
    if history.rounds and history.finished is None:
        latest = history.rounds[-1]
        told = "unknown" if latest.accuracy is None else f"{latest.accuracy:.3f}"
        log.info(
            "Round %d: %d clients, %s per cluster, accuracy %s.",
            round_number(latest.round_index),
            latest.participants,
            list(latest.clients),
            told,
        )


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

        def train(call: ClientRequest, cluster: int) -> Params:
            return _trained(call_next, (message, context), call, cluster)

        return answer_message(message, lambda: _node(context, model, data), train)

    return mod


def _node(context: Context, model: Model | None, data: Callable[[Context], Pair] | None) -> Node:
    file = _file(context)
    if data is None:
        return Node(Path(file), model, None)
    # a server's half comes with it, which no other client needs
    from covey.data.conversion import examples_of

    return Node(Path(file), model, examples_of(file, data(context)))


def _file(context: Context) -> str:
    """Return where the client's node.toml is.

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
    return file


def _trained(
    train: ClientAppCallable,
    received: tuple[Message, Context],
    request: ClientRequest,
    cluster: int,
) -> Params:
    """Let the app's own function train; it sees an ordinary Flower message."""
    message, context = received
    recipe = ConfigRecord({"lr": request.recipe.learning_rate})
    message.content = RecordDict({"arrays": arrays(request.models[cluster]), "config": recipe})
    answer = train(message, context).content["arrays"]
    if not isinstance(answer, ArrayRecord):
        raise ConfigError(
            f"The training function must return its model as 'arrays', found "
            f"{type(answer).__name__}. Return it as in Flower's examples."
        )
    return dict(answer.to_torch_state_dict())


client_app = ClientApp()


@client_app.train()
def _answer(message: Message, context: Context) -> Message:
    """Answer a covey server, and train as the settings say."""
    return answer_message(message, lambda: _node(context, None, None))
