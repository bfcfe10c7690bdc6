"""Parameters that do not train are one for a run: kept once, sent and averaged never."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import covey
from covey import CoveyError, ModelError, RunError
from covey.models.build import exchanged_params, frozen_params, initial_params, set_params
from covey.runs.repair import damages
from covey.runtime.folder import RunFolder
from runtime.conftest import tiny


class Adapted(nn.Module):
    """A backbone of 64 x 32 weights, and a head of 32 x 10."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Linear(64, 32).requires_grad_(requires_grad=False)
        self.head = nn.Linear(32, 10)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.backbone(inputs.flatten(1)).relu())


class Held(Adapted):
    """The same, whose backbone torch does not know to be part of it."""

    def __init__(self) -> None:
        super().__init__()
        backbone = self.backbone
        del self.backbone
        self.hidden = (backbone,)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.hidden[0](inputs.flatten(1)).relu())


class Unfrozen(Adapted):
    def __init__(self) -> None:
        super().__init__()
        self.requires_grad_(requires_grad=True)


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


def test_a_model_is_what_trains_and_its_buffers():
    first, last = nn.Linear(2, 2), nn.Linear(2, 2)
    module = nn.Sequential(first, nn.BatchNorm1d(2), last)
    for frozen in (*first.parameters(), last.bias):
        frozen.requires_grad = False
    assert list(frozen_params(module)) == ["0.weight", "0.bias", "2.bias"]
    params = initial_params(module)
    assert list(params) == [
        *("1.weight", "1.bias", "1.running_mean", "1.running_var", "1.num_batches_tracked"),
        "2.weight",
    ]
    before = first.weight.clone()
    set_params(module, {name: value + 1 for name, value in params.items()})
    assert torch.equal(first.weight, before)
    assert torch.equal(exchanged_params(module)["2.weight"], params["2.weight"] + 1)
    with pytest.raises(RuntimeError, match="Missing key"):
        set_params(module, {"1.weight": before[0]})


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


@pytest.mark.parametrize("engine", ["reference", "vmap"])
def test_it_trains_as_a_head_over_features_does(tmp_path, engine):
    config = CONFIG.model_copy(update={"engine": tiny(engine={"name": engine}).engine})
    one = play(tmp_path / "frozen", drawn(Adapted), config)
    two = play(tmp_path / "held", drawn(Held), config)
    assert one.summary.model_hash == two.summary.model_hash


def test_frozen_draws_are_one_for_all_clusters_and_follow_the_seed(tmp_path):
    clusters = {"initialisation": "random", "num_clusters": 2}
    config = tiny(rounds=1, risk={"name": "none"}, method={"name": "ifca", **clusters})
    runs = [play(tmp_path / str(i), Adapted, config) for i in range(2)]
    frozen = [load_file(each.folder / "frozen.safetensors") for each in runs]
    assert torch.equal(frozen[0]["backbone.weight"], frozen[1]["backbone.weight"])
    one, two = (runs[0].params(j) for j in range(2))
    assert torch.equal(one["backbone.weight"], two["backbone.weight"])
    other = play(tmp_path / "other", Adapted, config.model_copy(update={"seed": 9}))
    assert not torch.equal(other.params(0)["backbone.weight"], one["backbone.weight"])


@pytest.mark.parametrize(
    ("begun", "now", "error"),
    [
        (
            Adapted,
            lambda: drawn(Adapted, 1),
            r"tensors of model\.frozen must be the one that began",
        ),
        (Adapted, lambda: drawn(Unfrozen), "backbone.bias has the shape of nothing"),
        (Unfrozen, lambda: drawn(Adapted), "found none. Pass the same model"),
    ],
)
def test_a_run_goes_on_with_its_own_frozen_parameters_alone(mine, tmp_path, begun, now, error):
    run = mine if begun is Adapted else play(tmp_path / "other", drawn(begun))
    assert (run.folder / "frozen.safetensors").exists() == (begun is Adapted)
    with pytest.raises(CoveyError, match=error):
        covey.resume(run.folder, model=now(), clients=clients())


def test_who_leaves_leaves_the_frozen_parameters_as_they_are(mine):
    run = mine
    before = load_file(run.folder / "frozen.safetensors")
    kept = run.export(cluster=0)
    run.forget("c1", answer="retrain")
    after = load_file(run.folder / "frozen.safetensors")
    assert torch.equal(before["backbone.weight"], after["backbone.weight"])
    assert not (run.folder / kept.path).exists()
    now = covey.load(run.folder).export(cluster=0)
    assert load_file(run.folder / now.path).keys() == before.keys() | {"head.weight", "head.bias"}


@pytest.mark.parametrize("damage", ["gone", "cut", "other"])
def test_a_damaged_file_is_seen_and_written_anew(mine, played, damage):
    run, module = mine, played[1]
    path = run.folder / "frozen.safetensors"
    whole = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(whole[:-9] if damage == "cut" else whole[:-1] + b"\1")
    with pytest.raises(RunError, match="must hold the model's parameters that do not train"):
        run.params(0)
    found = [each.path for each in damages(RunFolder(run.folder))]
    assert found == [path]
    covey.resume(run.folder, model=module, clients=clients())
    assert path.read_bytes() == whole
    assert run.params(0)


def test_a_model_that_trains_nothing_is_refused(tmp_path):
    with pytest.raises(ModelError, match="must have a parameter to train"):
        play(tmp_path / "run", drawn(Adapted).requires_grad_(requires_grad=False))
