"""Parameters that do not train are one for a run: kept once, sent and averaged never."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import covey
from covey import CoveyError, RunError
from covey.api.damage import damages
from covey.runs.folder import RunFolder
from runs.conftest import tiny


class Adapted(nn.Module):
    """A backbone of 64 x 32 weights, and a head of 32 x 10."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Linear(64, 32).requires_grad_(requires_grad=False)
        self.head = nn.Linear(32, 10)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.backbone(inputs.flatten(1)).relu())


def drawn(make: type[nn.Module], seed: int = 0) -> nn.Module:
    with covey.Streams(seed).lent_to_torch():
        return make()


CONFIG = tiny(rounds=3, risk={"name": "none"}, method={"name": "ifca", "initialisation": "warm"})


def play(folder: Path, model: Any, config: covey.Config = CONFIG) -> covey.Run:
    return covey.run(config=config, model=model, clients=clients(), out=folder)


def clients() -> dict[str, tuple[Tensor, Tensor]]:
    draws = torch.Generator().manual_seed(0)
    labels = {f"c{i}": torch.randint(0, 10, (20,), generator=draws) for i in range(5)}
    return {n: (torch.randn(20, 64, generator=draws), y) for n, y in labels.items()}


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, nn.Module]:
    module = drawn(Adapted)
    folder = tmp_path_factory.mktemp("frozen") / "run"
    play(folder, module)
    return folder, module


@pytest.fixture
def mine(played: tuple[Path, nn.Module], tmp_path: Path) -> covey.Run:
    """The same run, to be changed."""
    folder, module = played
    return covey.load(shutil.copytree(folder, tmp_path / "run"), module, clients())


def test_files_of_rounds_hold_what_trains_alone(played):
    folder, module = played
    states = sorted((folder / "checkpoints").glob("*.safetensors"))
    assert len(states) == 3
    for each in states:
        assert {name.rpartition("/")[2] for name in load_file(each)} == {"head.weight", "head.bias"}
        assert each.stat().st_size < 64 * 32 * 4  # less than the backbone's weights
    frozen = load_file(folder / "frozen.safetensors")
    assert list(frozen) == ["backbone.bias", "backbone.weight"]
    assert torch.equal(frozen["backbone.weight"], module.get_parameter("backbone.weight"))


def test_a_user_gets_the_whole_model(played, tmp_path):
    folder, module = played
    run, got = covey.load(folder), Adapted()
    got.load_state_dict(run.params(0))
    assert torch.equal(got.backbone.weight, module.get_parameter("backbone.weight"))
    assert not torch.equal(got.head.weight, module.get_parameter("head.weight"))
    copy = run.export(cluster=0, out=tmp_path / "model.safetensors")
    got.load_state_dict(load_file(copy.path))


def test_a_run_goes_on_with_its_own_frozen_parameters_alone(mine):
    error = r"tensors of model\.frozen must be what began"
    with pytest.raises(CoveyError, match=error):
        covey.resume(mine.folder, model=drawn(Adapted, 1), clients=clients())


def test_a_damaged_file_is_seen_and_written_anew(mine, played):
    run, module = mine, played[1]
    path = run.folder / "frozen.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + b"\1")
    with pytest.raises(RunError, match="must hold the model's parameters that do not train"):
        run.params(0)
    found = [each.path for each in damages(RunFolder(run.folder))]
    assert found == [path]
    covey.resume(run.folder, model=module, clients=clients())
    assert path.read_bytes() == whole
    assert run.params(0)
