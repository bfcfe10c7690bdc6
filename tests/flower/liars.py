"""Ten digits clients over Flower's in-process grid, some of which lie; and how it ends."""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from covey import Examples, Run, ScoringJob
from covey.base.events import AnswerRefused, Event
from covey.flower.apps import Federated
from covey.flower.client import client_app
from covey.ledger.store import Ledger
from covey.runtime.folder import RunFolder
from covey.runtime.inputs import rebuilt_run
from covey.runtime.session import read_events
from flower.inprocess import InProcessGrid

CLIENTS, EXAMPLES, TESTED = 10, 80, 500
NAMES = tuple(f"client-{index:05}" for index in range(CLIENTS))

Lie = Callable[[dict[str, Any], dict[str, np.ndarray]], None]
"""Changes an answer's words, and its update, in place."""

SETTINGS: Mapping[str, Any] = {
    "rounds": 10,
    "model": {"name": "mlp"},
    "train": {"local_epochs": 2, "optimizer": {"momentum": 0.9}, "batch_size": 20},
    "method": {"name": "fedavg"},
    "risk": {"name": "none"},
}


def written(message: Message) -> dict[str, Any]:
    record = message.content["covey"]
    assert isinstance(record, ConfigRecord)
    return json.loads(str(record["json"]))


@dataclass
class Ten:
    """A federation's folder, its nodes in this process, and who of them lies.

    Attributes:
        lies: by the task that is answered, "hello" included.
    """

    path: Path
    digits: Examples
    liars: Collection[str] = ()
    lies: Mapping[str, Lie] = ()  # type: ignore[assignment]

    def write(self, **sections: Any) -> None:
        """Write the settings and the nodes' files."""
        settings = {**SETTINGS, **sections, "data": {"name": "npz"}}
        settings["engine"] = {"name": "flower"}
        (self.path / "covey.toml").write_text(tomli_w.dumps(settings))
        for index, name in enumerate(NAMES):
            own = self.digits.take(torch.arange(EXAMPLES * index, EXAMPLES * (index + 1)))
            folder = self.path / name
            folder.mkdir()
            arrays = {"x": own.inputs[:, 0].numpy(), "y": own.labels.numpy()}
            np.savez(folder / "mine.npz", allow_pickle=False, **arrays)
            self.node(name)

    def node(self, name: str, folder: str = "", **more: Any) -> Path:
        """Write one node's file."""
        where = self.path / (folder or name)
        where.mkdir(exist_ok=True)
        told = {"name": name, "seed": 0, "config": "../covey.toml", **more}
        told.setdefault("data", "mine.npz")
        (where / "node.toml").write_text(tomli_w.dumps(told))
        return where / "node.toml"

    def grid(self) -> InProcessGrid:
        files = {
            100 + index: str(self.path / name / "node.toml") for index, name in enumerate(NAMES)
        }
        return InProcessGrid(client_app, files, self.wire)

    def wire(self, question: Message, reply: Message) -> list[Message]:
        """Let liars change what their nodes answered."""
        asked = written(question)
        said = written(reply)
        lie = dict(self.lies).get(asked["asked"]["task"])
        if lie is None or said["name"] not in self.liars:
            return [reply]
        record = reply.content.get("update")
        update = (
            {name: value.numpy().copy() for name, value in record.items()}
            if isinstance(record, ArrayRecord)
            else {}
        )
        lie(said, update)
        content = RecordDict({"covey": ConfigRecord({"json": json.dumps(said)})})
        if update:
            arrays = {name: Array(value) for name, value in update.items()}
            content["update"] = ArrayRecord(arrays)
        return [Message(content, reply_to=question)]

    def play(self, out: str = "run", nodes: int = CLIENTS, **terms: Any) -> Run:
        federated = Federated(self.path / "covey.toml", **terms)
        return federated.start(self.grid(), self.path / out, nodes)

    def accuracy(self, result: Run, cluster: int = 0) -> float:
        """Return a model's accuracy on digits that no client has."""
        engine = rebuilt_run(RunFolder(result.folder)).engine
        unseen = self.digits.take(torch.arange(len(self.digits))[-TESTED:])
        (scored,) = engine.score([ScoringJob(result.params(cluster), unseen)])
        assert scored.correct is not None
        return float(scored.correct.mean())


def told(result: Run) -> list[Event]:
    with Ledger.read(RunFolder(result.folder).ledger) as ledger:
        return [event for _, events in read_events(ledger) for event in events]


def reasons(result: Run) -> list[str]:
    return [e.reason for e in told(result) if isinstance(e, AnswerRefused)]


def sets_all(value: float) -> Lie:
    def lie(_: dict[str, Any], update: dict[str, np.ndarray]) -> None:
        for each in update.values():
            each[...] = value

    return lie


def scaled(factor: float) -> Lie:
    def lie(_: dict[str, Any], update: dict[str, np.ndarray]) -> None:
        for each in update.values():
            each *= factor

    return lie
