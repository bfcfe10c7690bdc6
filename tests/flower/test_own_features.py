"""A node's frozen network sees its records once, though every message is a new process."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from covey_flower.client import Node

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
def node(build, monkeypatch):
    monkeypatch.delenv("COVEY_FEATURES", raising=False)
    seen.clear()
    model = {"name": "linear-head", "features": f"{__name__}:Network"}
    settings = {"method": {"name": "fedavg"}, "model": model}
    return Node(Path(build(settings, clients=[0]).files[100]))


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
