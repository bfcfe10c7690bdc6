"""A Flower app as its quickstart writes it, and the lines that bring covey in."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from covey.base.events import AnswerRefused
from covey_flower.apps import Federated
from covey_flower.client import covey_mod
from flower.conftest import Built, all_of, settings_with
from flower.inprocess import outside_a_run

SETTINGS = settings_with(
    model={"name": "linear-head", "features": {"size": 4}},
    train={"local_epochs": 1, "learning_rate": 0.2},
    method={"initialisation": "random"},
    risk={"name": "none"},
)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.out = nn.Linear(64, 32), nn.Linear(32, 10)

    def forward(self, x):
        return self.out(functional.relu(self.hidden(x.flatten(1))))


def load_data(context: Context) -> tuple[torch.Tensor, torch.Tensor]:
    """The client's own way to its data."""
    file = str(context.node_config["file"]).replace("node.toml", "own.npz")
    with np.load(file) as own:
        return torch.from_numpy(own["x"])[:, None], torch.from_numpy(own["y"])


app = ClientApp(mods=[covey_mod(Net, load_data)])
SEEN: list[dict[str, object]] = []


@app.train()
def _train(msg: Message, context: Context) -> Message:
    model = Net()
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())  # type: ignore[union-attr]
    lr = msg.content["config"]["lr"]  # type: ignore[index]
    SEEN.append({"lr": lr, "records": sorted(msg.content)})
    images, labels = load_data(context)
    data = TensorDataset(images.float() / 255, labels)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)  # type: ignore[arg-type]
    loss = torch.tensor(0.0)
    for x, y in DataLoader(data, batch_size=10):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    content = RecordDict(
        {
            "arrays": ArrayRecord(model.state_dict()),
            "metrics": MetricRecord({"loss": loss.item(), "num-examples": len(data)}),
        }
    )
    return Message(content=content, reply_to=msg)


@app.evaluate()
def _evaluate(msg: Message, context: Context) -> Message:
    metrics = MetricRecord({"records": len(msg.content), "num-examples": 1})
    return Message(RecordDict({"metrics": metrics}), reply_to=msg)


@pytest.fixture
def adopted(build, own_data):
    """A federation whose nodes name no data, and whose settings name another network."""

    def of(rounds: int) -> Built:
        federation = build({**SETTINGS, "rounds": rounds}, clients=())
        for index in range(4):
            name = f"client-{index:05}"
            federation.node(name, data="", report_accuracy=True)
            (federation.path / name / "own.npz").symlink_to(own_data / f"{name}.npz")
        SEEN.clear()
        return federation

    return of


@pytest.mark.slow
def test_an_app_of_ones_own_trains_in_clusters(adopted):
    federation = adopted(5)
    federated = Federated(str(federation.path / "covey.toml"), Net)
    result = federated.start(federation.grid(app), str(federation.path / "mine"), nodes=4)
    assert len(SEEN) == 5 * 4
    assert all(seen == {"lr": 0.2, "records": ["arrays", "config"]} for seen in SEEN)
    assert [r.participants for r in result.history.rounds] == [4] * 5
    first, *_, last = [r.accuracy for r in result.history.rounds]
    assert first is not None
    assert last is not None
    assert last > first + 0.3
    Net().load_state_dict(dict(result.params(0)))


ORDERS = {
    "client-00000": ("age", "bmi"),
    "client-00001": ("age", "bmi"),
    "client-00002": ("bmi", "age"),
    "client-00003": ("age", "height"),
}


def load_table(context: Context) -> Any:
    """A table of two columns, in the node's own order."""
    name = Path(str(context.node_config["file"])).parent.name
    values = np.random.default_rng(0).normal(size=(30, 2)).astype(np.float32)
    return pd.DataFrame(values, columns=list(ORDERS[name])).assign(y=np.arange(30) % 2)


def test_nodes_whose_tables_have_other_columns_or_another_order_are_refused(build):
    settings = {**SETTINGS, "rounds": 1, "model": {"name": "linear"}}
    federation = build(settings, clients=())
    for name in ORDERS:
        federation.node(name, data="")
    tables = ClientApp(mods=[covey_mod(lambda: nn.Linear(2, 2), load_table)])
    tables.train()(_train_linear)
    federated = Federated(str(federation.path / "covey.toml"), lambda: nn.Linear(2, 2))
    result = federated.start(federation.grid(tables), str(federation.path / "run"), nodes=2)
    assert set(result.names) == {"client-00000", "client-00001"}
    assert [event.reason for event in all_of(AnswerRefused, result)] == [
        "its tables must have the others' columns in the others' order: compare their names"
    ] * 2


def _train_linear(msg: Message, _: Context) -> Message:
    content = RecordDict({"arrays": msg.content["arrays"]})
    return Message(content=content, reply_to=msg)


def message(kind: str) -> Message:
    outside_a_run()
    model = ArrayRecord(Net().state_dict())
    content = RecordDict({"arrays": model, "config": ConfigRecord({"lr": 0.1})})
    return Message(content, 7, kind)


def test_messages_that_are_not_coveys_pass_untouched(adopted):
    file = adopted(1).files[100]
    context = Context(1, 100, {"file": file}, RecordDict(), {})
    trained = app(message("train"), context).content
    assert sorted(trained) == ["arrays", "metrics"]
    assert trained["metrics"]["num-examples"] == 100  # type: ignore[index]
    evaluated = app(message("evaluate"), context).content
    assert evaluated["metrics"]["records"] == 2  # type: ignore[index]
