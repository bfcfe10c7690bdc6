"""A grid in one process: client apps called as functions, without sockets or Ray.

For tests, and for a look at a federation before there is one. Messages are the same, and
so is everything on both sides; only their way is not.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

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
            node, replies = message.metadata.dst_node_id, list[Message]()
            if node in self.files:
                context = Context(1, node, {"file": self.files[node]}, RecordDict(), {})
                reply = reply_from(self._app, message, context)
                replies = self._wire(message, reply)
            self._arrived += replies or self.silence(message)
        return pushed

    def silence(self, message: Message) -> list[Message]:
        """Return what comes of a question that nothing comes of: that nobody is there."""
        error = Error(code=0, reason="the node is not there")
        return [Message(error, reply_to=message)]

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the answers that came, each once."""
        arrived, self._arrived = self._arrived, []
        return arrived

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Refuse: a server asks, and then waits as long as it likes."""
        raise NotImplementedError
