"""Whole runs with a model of several inputs, which end in the models of one that parts them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from covey import Config, DataError, Params, Run, audit_model, run
from covey.settings.clients import Overrides
from covey_flower.client_runtime import client_runtime_of
from covey_flower.node_file import NodeFile

SETTINGS: Mapping[str, Any] = {
    "rounds": 4,
    "method": {"num_clusters": 2},
    "train": {"learning_rate": 0.3, "local_epochs": 2},
    "risk": {"every": 2},
}


class Words(nn.Module):
    """Two scores of the words that are not masked, and of two numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.scores = nn.Embedding(7, 4), nn.Linear(6, 2)

    def forward(self, ids: Tensor, mask: Tensor, numbers: Tensor) -> Tensor:
        words = (self.embedding(ids) * mask[..., None]).sum(dim=1)
        return self.scores(torch.cat([words, numbers], dim=1))


class Joined(Words):
    """The same, of one tensor."""

    def forward(self, inputs: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        ids, mask, numbers = inputs.split([5, 5, 2], dim=1)
        return super().forward(ids.long(), mask.bool(), numbers)


def parts(count: int = 40) -> dict[str, tuple[dict[str, Tensor], Tensor]]:
    draws = torch.Generator().manual_seed(0)
    ids = torch.randint(7, (4, count, 5), generator=draws)
    mask = torch.rand(4, count, 5, generator=draws) < 0.7
    numbers = torch.randn(4, count, 2, generator=draws)
    labels = (((ids > 2) & mask).sum(dim=2) + numbers[..., 0] > 2).long()
    return {
        f"c{i}": ({"ids": ids[i], "mask": mask[i], "numbers": numbers[i]}, labels[i])
        for i in range(4)
    }


def joined() -> dict[str, tuple[Tensor, Tensor]]:
    return {
        name: (torch.cat([each.float() for each in inputs.values()], dim=1), labels)
        for name, (inputs, labels) in parts().items()
    }


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("several") / "run"
    return run(Words, parts(), Config.of(SETTINGS), out=out)


def models(run: Run) -> list[Params]:
    return [run.params(j) for j in range(2)]


def test_the_models_are_those_of_one_tensor_to_the_bit(several: Run, tmp_path: Path):
    plain = run(Joined, joined(), Config.of(SETTINGS), out=tmp_path / "run")
    assert several.summary.accuracy == plain.summary.accuracy
    for own, other in zip(models(several), models(plain), strict=True):
        assert list(own) == list(other)  # and no name has a prefix
        assert all(torch.equal(own[name], other[name]) for name in own)
    risks = [[c.risk for c in each.summary.clusters] for each in (several, plain)]
    assert risks[0] == risks[1]
    assert any(risk is not None for risk in risks[0])


@pytest.mark.slow
def test_by_position_it_is_the_same_model_that_an_audit_attacks_and_a_client_leaves(
    several: Run, tmp_path: Path
):
    clients = {name: (tuple(inputs.values()), y) for name, (inputs, y) in parts().items()}
    again = run(Words, clients, Config.of(SETTINGS), out=tmp_path / "run")
    for own, other in zip(models(again), models(several), strict=True):
        assert all(torch.equal(own[name], other[name]) for name in own)
    found = again.audit(["loss", "weights"], references=2)
    assert any(cluster.attacks for cluster in found.clusters)
    (left,) = again.forget("c3", basis="erasure")
    assert left.answered.option.answer == "retrain"
    assert "c3" not in again.names


def test_what_reads_one_tensor_alone_refuses_several(tmp_path: Path):
    out = tmp_path / "run"
    with pytest.raises(DataError, match=r"'image' needs a tensor of .* found several"):
        run(Words, parts(), Config.of({**SETTINGS, "data": {"normalise": "image"}}), out=out)
    secrets = NodeFile(name="c0", seed=1)
    with pytest.raises(DataError, match="must bring one tensor of inputs"):
        client_runtime_of(
            Config.of(SETTINGS), secrets, Overrides(model=Words, clients={"c0": parts()["c0"]})
        )
    with pytest.raises(DataError, match="members must bring one tensor of inputs"):
        audit_model(Words(), parts()["c0"], parts()["c1"])
    assert not out.exists()
