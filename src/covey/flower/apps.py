"""The two apps of a federation on Flower, and what an app of one's own takes from them.

A complete federation needs no code: `covey deploy init` writes it. Who has a Flower app
keeps its training function and adds

    app = ClientApp(mods=[covey_mod(Net, load_data)])           # client_app.py

    @app.main()                                                 # server_app.py
    def main(grid, context):
        Federated("covey.toml", Net).start(grid, out="runs/mine", nodes=6)
"""

import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable, Mod
from flwr.serverapp import Grid, ServerApp
from torch import Tensor, nn

from covey.api import Run, load
from covey.assembly import Given, assemble
from covey.config import Config, load_config
from covey.data import examples_of
from covey.errors import ConfigError
from covey.flower.messages import arrays
from covey.flower.node import Node, agreement, answered
from covey.flower.nodes import Nodes, Terms
from covey.history import History
from covey.ledger import Ledger
from covey.simulation import Roster, RunFolder, carry_on, opened
from covey.strategies import Call
from covey.types import ClientName, Params

__all__ = ["Federated", "client_app", "covey_mod", "server_app"]

log = logging.getLogger("covey.flower")

Model = Callable[[], nn.Module]
Pair = tuple[Tensor, Tensor]


def covey_mod(
    model: Model | None = None, data: Callable[[Context], Pair] | None = None
) -> Mod:
    """Return what makes a client app choose its cluster, and answer a covey server.

    Args:
        model: builds a fresh module; None: the network that covey.toml names.
        data: the client's (inputs, labels); None: those that its node.toml names.

    The app's own training function is called with the chosen model as `arrays`, and
    returns the trained one as `arrays`, as in Flower's examples. Messages that do not
    come from a covey server are passed on.
    """

    def mod(
        message: Message, context: Context, call_next: ClientAppCallable
    ) -> Message:
        if not message.has_content() or "covey" not in message.content:
            return call_next(message, context)

        def train(call: Call, cluster: int) -> Params:
            return _trained(call_next, (message, context), call, cluster)

        return answered(message, lambda: _node(context, model, data), train)

    return mod


def _node(
    context: Context, model: Model | None, data: Callable[[Context], Pair] | None
) -> Node:
    file = _file(context)
    return Node(Path(file), model, examples_of(file, data(context)) if data else None)


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
    train: ClientAppCallable, told: tuple[Message, Context], call: Call, cluster: int
) -> Params:
    """Let the app's own function train; it sees an ordinary Flower message."""
    message, context = told
    recipe = ConfigRecord({"lr": call.recipe.learning_rate})
    message.content = RecordDict(
        {"arrays": arrays(call.models[cluster]), "config": recipe}
    )
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
    return answered(message, lambda: _node(context, None, None))


server_app = ServerApp()


@server_app.main()
def _main(grid: Grid, context: Context) -> None:
    """Play the run that the app's configuration names, or carry it on."""
    _speak_as_flower()
    told = {key: str(value) for key, value in context.run_config.items()}
    names = frozenset(filter(None, told.get("names", "").split(",")))
    federated = Federated(told["config"], invited=names, timeout=float(told["timeout"]))
    federated.start(grid, told["out"], int(told["nodes"]))


@dataclass(frozen=True, slots=True)
class Federated:
    """A covey run whose clients are Flower nodes; it starts where a strategy would.

    Attributes:
        config: the settings, or their TOML file.
        model: builds a fresh module; None: the network that the settings name.
        invited: names of clients; empty: whoever the SuperLink lets in.
        timeout: seconds that a round waits for a node.
    """

    config: Config | str | Path
    model: Model | None = None
    invited: frozenset[ClientName] = frozenset()
    timeout: float = 600.0

    def start(self, grid: Grid, out: str | Path, nodes: int = 2) -> Run:
        """Play the run in the folder `out` to its end; carry it on if it was begun.

        Waits until `nodes` nodes are there, less those that have left or ask to. Rounds
        keep their numbers over restarts.

        Raises:
            CoveyError: something does not fit.
        """
        folder = self._folder(Path(out))
        config = folder.config()
        roster = Roster.of(folder) or Roster(secrets.token_hex(8), None, self._home())
        clipped = config.privacy.client_noise > 0 or config.merge.noise == "sound"
        terms = Terms(
            run=roster.run,
            agreement=agreement(config),
            invited=self.invited,
            timeout=self.timeout,
            compares_norms=not clipped,
            equal_weights=config.merge.weights == "equal",
        )
        federation = Nodes(grid, terms, roster.profile)
        left, leaving = _left_and_leaving(folder)
        hidden = config.merge.name == "anonymity-sets" and roster.profile is None
        fewest = config.merge.min_anonymity if hidden else 1
        federation.wait_for(max(nodes - left - len(leaving), fewest), leaving)
        replace(roster, profile=federation.profile).write(folder)
        run = assemble(config, Given(model=self.model, federation=federation))
        with opened(run, folder) as desk:
            _, let_go = carry_on(desk, config.rounds, _report)
        for each in let_go:
            log.info("%s", each.told)
        log.info("Finished. `covey report %s` shows it.", folder.path)
        return load(folder.path)

    def _folder(self, out: Path) -> RunFolder:
        """Return the run's folder, a new one if there is none."""
        if (out / "config.toml").is_file():
            return RunFolder.existing(out)
        config = self.config
        if not isinstance(config, Config):
            config = load_config(config)
        settings = config.model_dump()
        settings["engine"]["name"] = "flower"
        if self.model is not None:
            settings["model"]["name"] = "python"
        return RunFolder.create(out, Config.of(settings))

    def _home(self) -> str:
        """Return the folder of the deployment, if there is one."""
        if isinstance(self.config, Config):
            return ""
        return str(Path(self.config).resolve().parent)


def _left_and_leaving(folder: RunFolder) -> tuple[int, frozenset[ClientName]]:
    """Return how many have left a run, and who has asked to and is not answered yet.

    Nobody waits for either.
    """
    if not Ledger.exists(folder.ledger):
        return 0, frozenset()
    with Ledger.read(folder.ledger) as ledger:
        left, names = len(ledger.tombstones()), ledger.names()
        asked = {r.handle for r in ledger.requests() if r.state == "pending"}
    words = {word.client for word in folder.words()}
    leaving = (name for h, name in names.items() if h in asked or name in words)
    return left, frozenset(leaving)


def _speak_as_flower() -> None:
    """Let what covey tells appear where Flower's own lines do."""
    theirs, ours = logging.getLogger("flwr"), logging.getLogger("covey")
    ours.handlers, ours.level, ours.propagate = theirs.handlers, logging.INFO, False


def _report(history: History) -> None:
    """Log the latest round."""
    if history.rounds and history.finished is None:
        latest = history.rounds[-1]
        told = "unknown" if latest.accuracy is None else f"{latest.accuracy:.3f}"
        log.info(
            "Round %d: %d clients, %s per cluster, accuracy %s.",
            latest.round_index,
            latest.participants,
            list(latest.clients),
            told,
        )
