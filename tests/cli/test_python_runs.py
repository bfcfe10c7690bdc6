"""A run that a program started: what its folder answers, and what needs the program."""

import csv
import importlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn

from covey import (
    Config,
    ConfigError,
    CoveyError,
    ModelError,
    Returning,
    RunError,
    load,
    resume,
    run,
    sweep,
)
from covey.base.events import ClientLeft
from covey.runtime.folder import RunFolder
from recorded import contents, requests_of

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
    before = contents(folder)
    for names in (["a"], ["a", "b"]):
        code, out, err = covey("forget", folder, *names, "--answer", wanted)
        assert (code, out) == (2, "")
        said = " ".join(err.split())
        assert f"covey.load('{folder}', model=..., clients=...).forget(...)" in said
        assert "package.module:function" in said
    if wanted == "retrain":
        assert contents(folder) == before
    assert requests_of(folder) == left(folder) == []
    assert "a" in load(folder).names


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


def test_after_a_denial_without_data_the_same_data_are_accepted_and_no_others(folder):
    load(folder).forget("a", answer="deny")
    assert resume(folder, make_model, data_of()).summary.finished
    assert resume(folder, make_model, data_of(NAMES[1:])).summary.finished
    changed = data_of() | {"b": data_of()["c"]}
    with pytest.raises(RunError, match="clients' data must be those"):
        resume(folder, make_model, changed)
    with pytest.raises(RunError, match="'b' is missing on one side"):
        resume(folder, make_model, data_of(NAMES[2:]))
    # a later answer with the data at hand records their hash again
    load(folder, make_model, data_of()).forget("b", answer="retrain")
    assert [each.data_hash is None for each in left(folder)] == [True, False]
    with pytest.raises(RunError, match="clients' data must be those"):
        resume(folder, make_model, data_of() | {"c": data_of()["d"]})


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


# `covey.run(exist=...)`: what becomes of what is in the folder already

ONE = {
    "rounds": 2,
    "method": {"name": "fedavg"},
    "risk": {"name": "none"},
    "engine": {"name": "reference"},
}


def played_to(out: Path, exist: Literal["error", "resume", "overwrite"] = "error", **changes: Any):
    config = Config.of({**ONE, **changes})
    return run(lambda: make_model(), data_of(), config, out, exist=exist)


class CutError(Exception):
    pass


def cut(row: object) -> None:
    raise CutError


def test_a_run_is_an_error_or_is_carried_on_or_makes_room(tmp_path):
    out, head = tmp_path / "run", played_to(tmp_path / "whole").ledger_head
    with pytest.raises(CutError):
        run(lambda: make_model(), data_of(), ONE, out, on_round=cut)
    with pytest.raises(RunError, match="already holds a run"):
        played_to(out)
    assert played_to(out, "resume").ledger_head == head
    assert played_to(out, "resume").ledger_head == head  # it is finished
    with pytest.raises(RunError, match=r"settings in config\.toml must be those"):
        played_to(out, "resume", seed=5)
    with pytest.raises(CoveyError):
        played_to(out, "overwrite", engine={"name": "no-such-engine"})
    assert load(out).ledger_head == head
    assert played_to(out, "overwrite", seed=5).ledger_head != head
    assert played_to(out, "overwrite").ledger_head == head
    assert played_to(tmp_path / "new", "overwrite").ledger_head == head
    assert played_to(tmp_path / "newer", "resume").ledger_head == head


def test_what_is_no_run_or_is_needed_is_never_overwritten(tmp_path):
    other = tmp_path / "thesis"
    other.mkdir()
    (other / "chapter.txt").write_text("two years of work")
    with pytest.raises(RunError, match="is not a covey run"):
        played_to(other, "overwrite")
    assert (other / "chapter.txt").exists()
    out = tmp_path / "run"
    with pytest.raises(CutError):
        run(lambda: make_model(), data_of(), ONE, out, on_round=cut)
    RunFolder(out).queue_request("b", "retrain")
    with pytest.raises(RunError, match="1 requests to leave wait for an answer"):
        played_to(out, "overwrite")
    played_to(out, "resume")
    with pytest.raises(RunError, match="must stay"):  # proofs, and a salt to hand out
        played_to(out, "overwrite")
    with pytest.raises(ConfigError, match="exist must be one of"):
        played_to(tmp_path / "x", "replace")  # pyright: ignore[reportArgumentType]
    assert not (tmp_path / "x").exists()


# `covey.sweep`: the runs and the table of `covey sweep`

SWEPT = {
    "rounds": 1,
    "risk": {"name": "none"},
    "engine": {"name": "reference"},
    "population": {"clients": 4, "examples_per_client": 10, "audit_examples": 20},
}
OVER = {"method.name": ["fedavg", "local"], "train.learning_rate": [0.2]}


def test_a_sweep_is_that_of_the_command_line(covey, tmp_path):
    """Both find that the models do no better than guessing; the command exits with 1."""
    swept = sweep(SWEPT, OVER, seeds=1, out=tmp_path / "python")
    (tmp_path / "one.toml").write_text(Config.of(SWEPT).toml())
    over = [f"{key}={','.join(map(str, values))}" for key, values in OVER.items()]
    options = [word for each in over for word in ("--over", each)]
    covey("sweep", "one.toml", *options, "--seeds", "1", "--out", "command")
    told = (tmp_path / "python" / "sweep.csv").read_text()
    assert told == (tmp_path / "command" / "sweep.csv").read_text()
    frame = swept.frame()
    rows = list(csv.DictReader(told.splitlines()))
    assert list(frame.columns) == list(rows[0])
    assert len(frame) == len(rows) == 2
    assert set(frame["train.learning_rate"]) == {0.2}
    assert swept.page.is_file()


def test_runs_of_a_sweep_that_are_there_are_kept_and_cut_ones_resumed(tmp_path):
    over, out = {"train.learning_rate": [0.1]}, tmp_path / "sweep"
    here = {"model": lambda: make_model(), "clients": data_of()}
    config = {"rounds": 2, "risk": {"name": "none"}}
    one = {**config, "train.learning_rate": 0.1, "seed": 7}
    with pytest.raises(CutError):
        run(**here, config=one, out=out / "0.1-seed7", on_round=cut)
    swept = sweep(config, over, seeds=[7], out=out, **here)
    assert list(swept.histories) == ["0.1-seed7"]
    head = load(out / "0.1-seed7").ledger_head
    sweep(config, over, seeds=[7], out=out, **here)
    assert load(out / "0.1-seed7").ledger_head == head
    with pytest.raises(ConfigError, match="holds a run with other settings"):
        sweep({**config, "rounds": 3}, over, seeds=[7], out=out, **here)
    with pytest.raises(ConfigError, match="changes no run of this sweep"):
        sweep(config, {"aggregation.radius": [1.0, 2.0]}, out=tmp_path / "x", **here)
