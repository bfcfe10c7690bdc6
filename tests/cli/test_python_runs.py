"""A run that a program started: what its folder answers, and what needs the program."""

import importlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from covey import Config, ConfigError, ModelError, Returning, RunError, load, resume, run
from covey.base.events import ClientLeft
from covey.runtime.folder import RunFolder

NAMES = ("a", "b", "c", "d", "e", "f")
HIDDEN = {"name": "anonymity-sets", "min_anonymity": 3, "deniability_threshold": 2}
SETTINGS = Config.of(
    {
        "rounds": 3,
        "method": {"name": "fedavg"},
        "risk": {"name": "none"},
        "engine": {"name": "reference"},
        "aggregation": HIDDEN,
        "train": {"learning_rate": 0.5, "batch_size": 5},
    }
)


def data_of(names: tuple[str, ...] = NAMES) -> dict[str, tuple[Tensor, Tensor]]:
    def pair(name: str) -> tuple[Tensor, Tensor]:
        inputs = torch.randn(20, 2, generator=torch.Generator().manual_seed(ord(name)))
        return inputs, (inputs[:, 0] > 0).long()

    return {name: pair(name) for name in names}


def make_model() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 2))


@pytest.fixture(autouse=True)
def own_keys(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "keys"))


@pytest.fixture(scope="module")
def played(tmp_path_factory) -> Path:
    """A run of a lambda and of tensors in memory; nobody writes it."""
    out = tmp_path_factory.mktemp("python") / "run"
    run(lambda: make_model(), data_of(), SETTINGS, out)
    return out


@pytest.fixture(scope="module")
def never(tmp_path_factory) -> str:
    """The models' hash at the end of a run that never met the client `a`."""
    out = tmp_path_factory.mktemp("never") / "run"
    made = run(lambda: make_model(), data_of(NAMES[1:]), SETTINGS, out)
    return made.summary.model_hash or ""


@pytest.fixture
def folder(played, tmp_path) -> Path:
    """The same, for oneself."""
    return shutil.copytree(played, tmp_path / "run")


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def left(folder: Path) -> list[ClientLeft]:
    return list(load(folder).history.left)


def test_explain_plan_report_and_export_need_neither_model_nor_data(answer, covey, folder):
    told = answer("explain", folder, "a")
    assert told["rounds_trained"] == [0, 1, 2]
    began = load(folder).history.started
    assert began is not None
    assert told["risk_threshold"] == began.risk_thresholds[told["handle"]]
    (plan,) = answer("forget", folder, "a", "--plan")["plans"]
    assert plan["chosen"]["answer"] == "deny"
    assert {o["answer"]: o["rounds_replayed"] for o in plan["options"]}["retrain"] == 3
    assert Path(answer("report", folder)["report"]).is_file()
    exported = answer("export", folder, "--client", "a", "--out", folder / "a.st")
    assert (folder / "a.st").is_file()
    assert exported["cluster"] == 0


def test_a_denial_needs_neither_model_nor_data_and_its_proof_says_what_was_not_measured(
    answer, folder
):
    before = load(folder).summary.model_hash
    (given,) = answer("forget", folder, "a", "--answer", "deny")["answers"]
    assert given["answer"] == "deny"
    assert given["model_hash"] == before
    assert not given["model_changed"]
    assert [each.data_hash for each in left(folder)] == [None]
    assert "a" not in load(folder).names
    verified = answer("verify", given["proof"], "--ledger", folder)
    assert verified["valid"]
    measured = json.loads(Path(given["proof"]).read_text())["measured"]
    assert measured["value"] is None
    assert measured["reason"] == "not-at-hand"


@pytest.mark.parametrize("wanted", ["retrain", "roll_back"])
def test_playing_rounds_again_without_the_model_is_refused_and_changes_nothing(
    covey, folder, wanted
):
    if wanted == "roll_back":
        config = folder / "config.toml"
        text = config.read_text().replace("deniability_threshold = 2", "deniability_threshold = 3")
        config.write_text(text)
    state = load(folder).summary
    code, out, err = covey("forget", folder, "a", "--answer", wanted)
    assert code == 2
    assert out == ""
    said = " ".join(err.split())
    assert f"covey.load('{folder}', model=..., clients=...).forget(...)" in said
    assert "package.module:function" in said
    again = load(folder)
    assert again.summary.model_hash == state.model_hash
    assert "a" in again.names
    assert not again.history.left


def test_of_several_names_nobody_leaves_where_one_answer_cannot_be_given(covey, folder):
    before = contents(folder)
    code, _, _ = covey("forget", folder, "a", "b", "--answer", "retrain")
    assert code == 2
    assert contents(folder) == before


def test_retraining_from_the_program_ends_where_a_run_without_the_client_ends(folder, never):
    held = load(folder, make_model, data_of())
    (done,) = held.forget(["a"], answer="retrain")
    assert done.answered.model_changed
    assert done.answered.model_hash == never
    assert held.summary.model_hash == never
    assert "a" not in held.names
    assert held.verify(done.answered.proof).valid


def test_the_object_that_run_returned_keeps_model_and_data(tmp_path):
    held = run(lambda: make_model(), data_of(), SETTINGS, tmp_path / "own")
    chosen = held.plan("a").chosen
    assert chosen is not None
    assert chosen.answer == "deny"
    assert [each.client for each in held.plan(["a", "b"])] == ["a", "b"]
    (done,) = held.forget("a", basis="erasure")
    assert done.answered.option.answer == "retrain"
    assert held.explain("b").client == "b"
    assert held.guarantee.guarantee is None
    assert held.guarantee.guarantee_reason
    copy = held.export(client="b", recipient="a shop")
    assert copy.location(RunFolder(held.folder)).is_file()
    assert copy.recipient == "a shop"
    assert held.report() == held.folder / "report.html"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({}, "takes an answer or the request's basis"),
        ({"answer": "delete"}, "found 'delete'"),
        ({"basis": "law"}, "found 'law'"),
    ],
)
def test_leaving_is_asked_for_by_an_answer_or_a_basis(folder, words, said):
    before = contents(folder)
    with pytest.raises(ConfigError, match=said):
        load(folder).forget("a", **words)
    assert contents(folder) == before


def test_after_a_denial_without_data_the_same_data_are_accepted(folder):
    load(folder).forget("a", answer="deny")
    assert resume(folder, make_model, data_of()).summary.finished
    assert resume(folder, make_model, data_of(NAMES[1:])).summary.finished


def test_after_a_denial_without_data_other_data_are_refused(folder):
    load(folder).forget("a", answer="deny")
    changed = data_of() | {"b": data_of()["c"]}
    with pytest.raises(RunError, match="clients' data must be those"):
        resume(folder, make_model, changed)
    with pytest.raises(RunError, match="'b' is missing on one side"):
        resume(folder, make_model, data_of(NAMES[2:]))


def test_a_later_answer_with_the_data_at_hand_records_their_hash_again(folder):
    load(folder).forget("a", answer="deny")
    load(folder, make_model, data_of()).forget("b", answer="retrain")
    assert [each.data_hash is None for each in left(folder)] == [True, False]
    changed = data_of() | {"c": data_of()["d"]}
    with pytest.raises(RunError, match="clients' data must be those"):
        resume(folder, make_model, changed)


def test_who_was_denied_without_data_comes_back_to_the_program_for_a_retraining(folder, never):
    (denied,) = load(folder).forget("a", answer="deny")
    back = Returning("a", denied.answered.salt)
    held = load(folder, make_model, data_of())
    (done,) = held.forget(back, basis="erasure")
    assert done.answered.option.answer == "retrain"
    assert held.summary.model_hash == never


def test_another_model_than_the_run_s_own_is_refused(folder):
    other = load(folder, lambda: nn.Linear(2, 2), data_of())
    before = contents(folder)
    with pytest.raises(ModelError, match="must be the one that began the run"):
        other.forget("a", answer="retrain")
    assert contents(folder) == before


def test_open_requests_come_before_a_denial_without_the_model(folder):
    RunFolder(folder).queue_request("b", "retrain")
    with pytest.raises(RunError, match="earlier requests to leave it are not answered"):
        load(folder).forget("a", answer="deny")
    assert "a" in load(folder).names


SHOP = """
import torch
from torch import nn

def make_model():
    return nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 2))

def clients():
    def pair(name):
        inputs = torch.randn(20, 2, generator=torch.Generator().manual_seed(ord(name)))
        return inputs, (inputs[:, 0] > 0).long()
    return {name: pair(name) for name in "abcdef"}
"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory) -> tuple[Path, Path]:
    """A folder with a module of the user's, and a run of what the module makes."""
    place = tmp_path_factory.mktemp("shop")
    (place / "own_shop.py").write_text(SHOP)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(place))
        own_shop = importlib.import_module("own_shop")
        run(own_shop.make_model, own_shop.clients, SETTINGS, place / "run")
        del sys.modules["own_shop"]
    return place, place / "run"


def test_what_can_be_imported_is_recorded_and_the_command_line_retrains(
    answer, shop, never, tmp_path, monkeypatch
):
    place, made = shop
    config = RunFolder(made).config()
    assert config.model.name == "own_shop:make_model"
    assert config.data.name == "own_shop:clients"
    folder = shutil.copytree(made, tmp_path / "run")
    monkeypatch.syspath_prepend(str(place))
    (given,) = answer("forget", folder, "a", "--answer", "retrain")["answers"]
    assert given["model_hash"] == never
    sys.modules.pop("own_shop")


def test_a_recorded_function_that_is_gone_still_leaves_a_denial(covey, shop, tmp_path):
    folder = shutil.copytree(shop[1], tmp_path / "run")
    code, _, err = covey("forget", folder, "a", "--answer", "retrain")
    assert code == 2
    assert "must be imported from where" in " ".join(err.split())
    (given,) = load(folder).forget("a", answer="deny")
    assert given.answered.option.answer == "deny"


@pytest.mark.slow
def test_another_process_explains_and_denies(folder):
    def ask(*words: object) -> dict[str, object]:
        command = [sys.executable, "-m", "covey", *map(str, words), "--json"]
        done = subprocess.run(command, capture_output=True, check=True, text=True)
        return json.loads(done.stdout)

    assert ask("explain", folder, "a")["client"] == "a"
    assert ask("forget", folder, "a", "--answer", "deny")["answers"]
