"""Federations in one process: real messages, real nodes' files, no network."""

import json
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import pytest
import tomli_w
import torch
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_public_key
from flwr.app import ConfigRecord, Context, Message
from flwr.clientapp import ClientApp
from flwr.proto.node_pb2 import NodeInfo

import covey
from covey import Config, Examples, Run, __version__
from covey.base.events import AnswerRefused, Event
from covey.ledger.store import Ledger
from covey.membership.estimators import FEWEST_REPORTING
from covey.runs.folder import RunFolder
from covey.runs.ledger_record import LedgerReader
from covey.settings.load import replace_setting
from covey_flower.apps import Federated
from covey_flower.client import client_app
from covey_flower.deployment import node_key
from covey_flower.messages import Hello, Reply, encode, question_of
from flower.inprocess import InProcessGrid

E = TypeVar("E", bound=Event)
Wire = Callable[[Message, Message], list[Message]]

SETTINGS = {
    "rounds": 4,
    "population": {"thresholds": [0.5, 0.6]},
    "model": {"name": "linear"},
    "train": {"local_epochs": 1, "optimizer": {"momentum": 0.9}, "batch_size": 20},
    "method": {"name": "ifca-mir", "selection": "weighted", "initialisation": "random"},
    "risk": {"name": "federated", "every": 2},
}
IN_SETS = {"name": "anonymity-sets", "min_anonymity": 2, "deniability_threshold": 1}


def settings_with(**sections: Mapping[str, object] | int) -> dict[str, object]:
    """The settings, with other values in some sections."""
    changed: dict[str, object] = deepcopy(SETTINGS)
    for name, part in sections.items():
        if not isinstance(part, Mapping):
            changed[name] = part
            continue
        if "name" in part:  # what the other component does not know is left out
            replace_setting(changed, [name, "name"], part["name"])
        changed[name] = {**cast("Mapping[str, object]", changed.get(name, {})), **part}
    return changed


def events_of(result: Run) -> list[Event]:
    """All that the ledger of a run holds."""
    with Ledger.read(RunFolder(result.folder).ledger) as ledger:
        return [event for _, event in LedgerReader().read(ledger).events]


def same_risks(federated: Run, here: Run) -> None:
    """Fail unless a federation measured what its simulation did, or too few told counts."""
    assert len(federated.history.measured) == len(here.history.measured)
    for real, simulated in zip(federated.history.measured, here.history.measured, strict=True):
        assert real.cluster == simulated.cluster
        figure, expected = real.estimate.figure, simulated.estimate.figure.value
        few = f"fewer than {FEWEST_REPORTING} clients sent counts" in figure.reason
        assert figure.value == (None if few else expected)


def reasons(result: Run) -> list[str]:
    """Why answers were refused."""
    return [event.reason for event in all_of(AnswerRefused, result)]


def written(message: Message) -> dict[str, Any]:
    """The words of a question or an answer."""
    record = message.content["covey"]
    assert isinstance(record, ConfigRecord)
    return json.loads(str(record["json"]))


def all_of(kind: type[E], result: Run) -> list[E]:
    return [event for event in events_of(result) if isinstance(event, kind)]


def as_sent(_: Message, reply: Message) -> list[Message]:
    return [reply]


def answering(
    weight: Callable[[int], float] = lambda _: 1.0, update: Callable[[int], float] = lambda _: 1.0
) -> ClientApp:
    """Nodes without records: n0, n1, ... of four examples, whose update is one number."""
    app = ClientApp()

    @app.train()
    def _answer(message: Message, context: Context) -> Message:
        question, node = question_of(message.content), context.node_id
        if question.request.task == "hello":
            identity = (__version__, question.token, f"n{node}", "same", (1, 8, 8), True, 10)
            return Message(encode(Hello(*identity, examples=4)), reply_to=message)
        reply = Reply(__version__, question.token, question.name, weight=weight(node))
        return Message(encode(reply, {"w": torch.tensor([update(node)])}), reply_to=message)

    return app


@dataclass
class Built:
    """A federation's folder, and its nodes in this process.

    Attributes:
        data: folder of the records that nodes and the simulation get.
    """

    path: Path
    settings: Mapping[str, object]
    data: Path
    files: dict[int, str] = field(default_factory=dict)
    wire: Wire = as_sent
    identities: dict[int, NodeInfo] = field(default_factory=dict)

    def node(self, name: str, place: str = "", **more: object) -> int:
        """Write a node's file, in a folder of its name; return the node's id."""
        folder = self.path / (place or name)
        folder.mkdir(exist_ok=True)
        own = self.path / "data" / f"{name}.npz"
        if not own.is_symlink():
            own.symlink_to(self.data / own.name)
        settings = {
            "name": name,
            "seed": 0,
            "config": "../covey.toml",
            "data": f"../data/{name}.npz",
            **more,
        }
        (folder / "node.toml").write_text(tomli_w.dumps(settings))
        number = 100 + int(name.rpartition("-")[2])
        self.files[number] = str(folder / "node.toml")
        return number

    def give_keys(self) -> None:
        """Give nodes what `covey deploy init` gives them, and the grid what is known."""
        keys = {n: node_key(Path(file).parent.name) for n, file in self.files.items()}
        peers = b"".join(public for _, public in keys.values())
        for number, (private, public) in keys.items():
            folder = Path(self.files[number]).parent
            (folder / "key").write_bytes(private)
            (folder / "peers").write_bytes(peers)
            pem = load_ssh_public_key(public).public_bytes(
                Encoding.PEM, PublicFormat.SubjectPublicKeyInfo
            )
            self.identities[number] = NodeInfo(node_id=number, public_key=pem)

    def grid(self, app: ClientApp = client_app) -> InProcessGrid:
        grid = InProcessGrid(app, self.files, lambda q, r: self.wire(q, r), self.identities)
        grid.files = self.files  # so that nodes can come and go
        return grid

    def play(self, out: str = "run", nodes: int = 4) -> Run:
        federated = Federated(self.path / "covey.toml")
        return federated.start(self.grid(), self.path / out, nodes)

    def simulated(self, out: str = "simulated") -> Run:
        """The same settings, played by a simulation."""
        return covey.run(config=Config.of(self.settings), out=self.path / out)


@pytest.fixture(scope="session")
def own_data(tmp_path_factory: pytest.TempPathFactory, digits: Examples) -> Path:
    """Six clients' files; the first two hold their digits upside down."""
    folder = tmp_path_factory.mktemp("own")
    for index in range(6):
        own = digits.take(torch.arange(100 * index, 100 * (index + 1)))
        images = own.inputs[:, 0]
        turned = images.flip(1, 2) if index < 2 else images
        np.savez(folder / f"client-{index:05}.npz", x=turned.numpy(), y=own.labels.numpy())
    return folder


@pytest.fixture
def build(tmp_path: Path, own_data: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Built]:
    # what is kept of records for all nodes of a user is a test's own, like its nodes
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "keys"))

    def built(
        settings: Mapping[str, object], clients: Sequence[int] = range(4), data: Path = own_data
    ) -> Built:
        (tmp_path / "data").mkdir()
        settings = {**settings, "data": {"name": "npz", "dir": str(tmp_path / "data")}}
        federation = Built(tmp_path, settings, data)
        engine = {"engine": {"name": "flower"}}
        (tmp_path / "covey.toml").write_text(tomli_w.dumps({**settings, **engine}))
        for index in clients:
            federation.node(f"client-{index:05}")
        if Config.of(settings).privacy.secure_sums:
            federation.give_keys()
        return federation

    return built
