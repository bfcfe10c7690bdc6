"""What a run keeps of rounds and parameters: kept once, and what was not written so."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import covey
from covey import ClientUpdate, CoveyError, RunError
from covey.algorithms.state import initial_state
from covey.api.damage import damages
from covey.base.history import History
from covey.leaving.copies import Copy
from covey.leaving.planning import current_rules
from covey.ledger.chain import Record
from covey.ledger.store import Ledger
from covey.runs.folder import RunFolder, checkpoint_path, rounds_in
from covey.runs.states import (
    checkpoint_bytes,
    delete_before,
    delete_from,
    drop_client,
    read_updates,
    save_state,
    state_problem,
    write_updates,
)
from support.runs import tiny

SMALL = {
    "population": {"clients": 2, "examples_per_client": 20, "holdout": 0},
    "model": {"name": "mlp"},
    "method": {"name": "fedavg"},
    "risk": {"name": "none"},
}


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.create(tmp_path / "ledger.sqlite", lambda: "2025-01-02T03:04:05Z") as made:
        for t in range(4):
            made.append(t, [Record(t, "CohortSampled", {"handles": []})])
        yield made


def saved(folder: Path, t: int, tensors: Any = MappingProxyType({})) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint_path(folder, t).write_bytes(checkpoint_bytes(t, tensors, {}))


@pytest.mark.parametrize(
    ("delete", "left"), [(delete_from, (0, 1)), (delete_before, (2, 3))], ids=["from", "before"]
)
def test_of_round_2_on_or_before_it(tmp_path, delete, left):
    for t in range(4):
        saved(tmp_path, t)
    delete(tmp_path, 2)
    assert rounds_in(tmp_path) == left


def test_who_leaves_has_no_stored_update_in_any_round(tmp_path: Path, ledger: Ledger):
    folder, sent = tmp_path / "updates", {"w": torch.ones(3)}
    updates = [ClientUpdate(handle, 0, sent, 1.0) for handle in ("h-a", "h-b")]
    for t in (1, 3):
        write_updates(folder, t, updates, ledger.files)
    drop_client(folder, "h-a", ledger.files)
    assert [read_updates(folder, t, ledger.files).keys() for t in (1, 3)] == [{"h-b"}] * 2
    saved(folder, 3, {"h-b/w": torch.zeros(3)})
    with pytest.raises(RunError, match="its bytes are not those that were written"):
        read_updates(folder, 3, ledger.files)


def test_a_state_is_one_of_its_round_alone(tmp_path: Path, ledger: Ledger):
    state = replace(initial_state(({"w": torch.ones(3)},)), round_index=2)
    save_state(tmp_path, state, "", ledger.files)
    written = checkpoint_path(tmp_path, 1)
    assert state_problem(written, ledger) == ""
    for t in (0, 2):
        other = checkpoint_path(tmp_path, t)
        shutil.copy(written, other)
        assert state_problem(other, ledger) == "it is the state after round 1"
    written.write_bytes(written.read_bytes()[:-1] + b"\1")
    assert state_problem(written, ledger) == "its bytes are not those that were written"


def test_a_run_keeps_each_round_s_updates_and_no_secret_of_one_that_is_over(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    settings = {**SMALL, "rounds": 4, "leaving": {"store_updates": 2}, "secrets": {"source": "os"}}
    seen: list[tuple[int, tuple[int, ...]]] = []

    def look(_: object) -> None:
        (secret,) = (tmp_path / "config" / "covey" / "runs").glob("*.json")
        kept_rounds = rounds_in(tmp_path / "run" / "updates")
        seen.append((json.loads(secret.read_text())["round"], kept_rounds))

    covey.run(config=settings, out=tmp_path / "run", on_round=look)
    assert seen == [(1, (0,)), (2, (0,)), (3, (0, 2)), (4, (0, 2))]


@pytest.mark.parametrize(
    ("copy", "first", "held"),
    [
        ({"round_index": 3}, 2, True),
        ({"round_index": 3}, 3, False),  # of the rounds 0 to 2
        ({"round_index": 3}, None, False),
        ({"round_index": None}, None, True),
        ({"what": "report"}, None, True),
        ({"what": "explanation", "subject": "h-a"}, 0, True),
        ({"what": "explanation", "subject": "h-b"}, 0, False),
    ],
)
def test_what_a_copy_holds_of_a_client(copy: dict[str, Any], first: int | None, *, held: bool):
    made = Copy(id="1", path="", sha256="", written="", **{"what": "model", **copy})
    assert made.holds("h-a", first) is held


def test_the_state_before_a_round_is_the_one_after_the_round_before_it(tmp_path: Path):
    folder = RunFolder(tmp_path)
    for t in (1, 3):
        saved(folder.checkpoints, t)
    assert current_rules(covey.Config(), folder, History()).restorable == (0, 2, 4)


def test_the_last_client_stays(tmp_path: Path):
    settings = {**SMALL, "rounds": 1}
    run = covey.run(config=settings, out=tmp_path / "run")
    run.forget("client-00000", answer="retrain")
    with pytest.raises(RunError, match="this client is the last one"):
        run.forget("client-00001", answer="retrain")


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
    for state in states:
        assert {name.rpartition("/")[2] for name in load_file(state)} == {
            "head.weight",
            "head.bias",
        }
        assert state.stat().st_size < 64 * 32 * 4  # less than the backbone's weights
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
    damaged = [damage.path for damage in damages(RunFolder(run.folder))]
    assert damaged == [path]
    covey.resume(run.folder, model=module, clients=clients())
    assert path.read_bytes() == whole
    assert run.params(0)
