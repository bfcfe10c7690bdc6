"""A node's frozen network sees its records once, though every message is a new process."""

import tomllib
from pathlib import Path

import pytest
import tomli_w
import torch
from torch import Tensor, nn

from covey.models.feature_store import FeatureStore
from covey_flower.client import Node
from flower.test_allowance import asking

seen: list[int] = []


class Network(nn.Module):
    """Stand-in for a backbone; its weights are those of every node."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 5)
        nn.init.constant_(self.layer.weight, 0.1)

    def forward(self, images: Tensor) -> Tensor:
        if images.any():  # a trial is of zeros
            seen.append(len(images))
        return self.layer(images.flatten(1)).relu()


@pytest.fixture
def federation(build, monkeypatch):
    monkeypatch.delenv("COVEY_FEATURES", raising=False)
    seen.clear()
    model = {"name": "linear-head", "features": f"{__name__}:Network"}
    settings = {"method": {"name": "ifca"}, "model": model}
    return build(settings, clients=[0])


@pytest.fixture
def node(federation):
    return Node(Path(federation.files[100]))


def test_records_are_seen_once(node):
    member = node.member(10)
    client, records = member.client, member.records
    assert records is not None
    assert sum(seen) == len(client.train) + len(client.holdout)
    first = records.features(client.train)
    seen.clear()
    again = Node(node.path).member(10)
    assert not seen
    assert again.records is not None
    assert torch.equal(first, again.records.features(again.client.train))
    assert node.features.stat().st_mode & 0o077 == 0


def test_a_node_that_leaves_keeps_none(federation, node):
    """Not even of the message with which it says so, for which it trains."""
    client = node.member(10).client
    told = tomllib.loads(node.path.read_text())
    node.path.write_text(tomli_w.dumps({**told, "leave": True}))
    model = {"head.weight": torch.zeros(10, 5), "head.bias": torch.zeros(10)}
    asking(federation, "choose")((model, model))
    assert not FeatureStore.at(node.features).holds(client.name)
