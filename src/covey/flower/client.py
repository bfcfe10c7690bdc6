"""A client's side of a federation on Flower, as a Flower app and for an app of one's own.

A process is started for every message: it imports nothing that only a server needs.
"""

from collections.abc import Callable
from pathlib import Path

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable, Mod
from torch import Tensor, nn

from covey.algorithms.remote import ClientRequest
from covey.base.errors import ConfigError
from covey.base.names import Params
from covey.flower.messages import arrays
from covey.flower.node import Node, answer_message

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


client_app = ClientApp()


@client_app.train()
def _answer(message: Message, context: Context) -> Message:
    """Answer a covey server, and train as the settings say."""
    return answer_message(message, lambda: _node(context, None, None))
