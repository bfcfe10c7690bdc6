"""A run that a program started: what its folder answers, and what needs the program."""

import csv
import importlib
import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn

from cli.conftest import refused
from covey import Config, ConfigError, CoveyError, RunError, load, resume, run, sweep
from covey.base.events import ClientLeft
from covey.runs.folder import RunFolder
from recorded import contents
from support.tiny import points_of

NAMES = ("a", "b", "c", "d", "e", "f")
HIDDEN = {"name": "anonymity-sets", "min_anonymity": 3, "deniability_threshold": 2}
SETTINGS = Config.of(
    {
        "rounds": 2,
        "method": {"name": "fedavg"},
        "risk": {"name": "none"},
        "engine": {"name": "reference"},
        "aggregation": HIDDEN,
        "train": {"learning_rate": 0.5, "batch_size": 5},
    }
)


def data_of(names: tuple[str, ...] = NAMES) -> dict[str, tuple[Tensor, Tensor]]:
    return points_of(names)


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


@pytest.mark.slow
def test_all_but_playing_rounds_again_needs_neither_model_nor_data(answer, folder):
    """And a proof says what was not measured."""
    before = load(folder).summary.model_hash
    assert answer("explain", folder, "a")["rounds_trained"] == [0, 1]
    (plan,) = answer("forget", folder, "a", "--plan")["plans"]
    assert plan["chosen"]["answer"] == "deny"
    assert Path(answer("report", folder)["report"]).is_file()
    assert answer("export", folder, "--client", "a", "--out", folder / "a.st")["cluster"] == 0
    (answered,) = answer("forget", folder, "a", "--answer", "deny")["answers"]
    assert answered["model_hash"] == before
    assert [departure.data_hash for departure in left(folder)] == [None]
    assert "a" not in load(folder).names
    assert answer("verify", answered["proof"], "--ledger", folder)["valid"]
    measured = json.loads(Path(answered["proof"]).read_text())["measured"]
    assert (measured["value"], measured["reason"]) == (None, "not-at-hand")


def test_playing_rounds_again_without_the_model_is_refused_and_changes_nothing(folder):
    before = contents(folder)
    for names in (["a"], ["a", "b"]):
        words = ("forget", folder, *names, "--answer", "retrain")
        refused(f"covey.load('{folder}', model=..., clients=...).forget(...)", *words)
    assert contents(folder) == before


def test_retraining_from_the_program_ends_where_a_run_without_the_client_ends(folder, never):
    held = load(folder, make_model, data_of())
    (done,) = held.forget(["a"], answer="retrain")
    assert done.answered.model_changed
    assert done.answered.model_hash == never
    assert held.summary.model_hash == never
    assert "a" not in held.names
    assert held.verify(done.answered.proof).valid


@pytest.mark.slow
def test_the_object_that_run_returned_keeps_model_and_data(tmp_path):
    held = run(lambda: make_model(), data_of(), SETTINGS, tmp_path / "own")
    assert [plan.client for plan in held.plan(["a", "b"])] == ["a", "b"]
    (done,) = held.forget("a", basis="erasure")
    assert done.answered.option.answer == "retrain"
    assert held.explain("b").client == "b"
    copy = held.export(client="b", recipient="a shop")
    assert copy.location(RunFolder(held.folder)).is_file()
    assert copy.recipient == "a shop"
    assert held.report() == held.folder / "report.html"


def test_after_a_denial_without_data_the_same_data_are_accepted_and_no_others(folder):
    load(folder).forget("a", answer="deny")
    assert resume(folder, make_model, data_of()).summary.finished
    assert resume(folder, make_model, data_of(NAMES[1:])).summary.finished
    changed = data_of() | {"b": data_of()["c"]}
    with pytest.raises(RunError, match="clients' data must be what"):
        resume(folder, make_model, changed)
    with pytest.raises(RunError, match="'b' is missing on one side"):
        resume(folder, make_model, data_of(NAMES[2:]))


SHOP = """
from cli.test_python_runs import data_of as clients, make_model
"""


@pytest.mark.slow
def test_what_can_be_imported_is_recorded_and_the_command_line_retrains(
    answer, never, tmp_path, monkeypatch
):
    (tmp_path / "own_shop.py").write_text(SHOP)
    monkeypatch.syspath_prepend(str(tmp_path))
    own_shop = importlib.import_module("own_shop")
    run(own_shop.make_model, own_shop.clients, SETTINGS, tmp_path / "run")
    del sys.modules["own_shop"]
    (answered,) = answer("forget", tmp_path / "run", "a", "--answer", "retrain")["answers"]
    assert answered["model_hash"] == never


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


def test_a_program_hears_of_a_model_that_failed(tmp_path):
    """By a warning, by the object's own words and in a notebook; else accuracy is all it sees."""
    mostly = {name: (x, (x[:, 0] > 1).long()) for name, (x, _) in data_of().items()}
    cases = {"diverged: ": (3e38, data_of()), "predicts the majority class: ": (1e-6, mostly)}
    for text, (rate, data) in cases.items():
        config = Config.of({**ONE, "train": {"learning_rate": rate, "local_epochs": 1}})
        with pytest.warns(RuntimeWarning, match=rf"round \d: the model of cluster 0 {text}"):
            made = run(lambda: constant(), data, config, tmp_path / text[:8])
        for said in (repr(made), made._repr_html_()):
            assert f"the model of cluster 0 {text}" in said


def constant() -> nn.Module:
    """A model that says "class 0" of everything, until it is trained."""
    layer = nn.Linear(2, 2)
    nn.init.zeros_(layer.weight)
    layer.bias.data = torch.tensor([3.0, 0.0])
    return layer


def test_ctrl_c_in_a_program_says_how_the_run_goes_on(tmp_path):
    def stop(_: object) -> None:
        raise KeyboardInterrupt

    out = tmp_path / "run"
    message = f"stopped after round 1; continue: covey.resume('{out}', model=..., clients=...)"
    with pytest.raises(KeyboardInterrupt, match=re.escape(message)):
        run(lambda: make_model(), data_of(), ONE, out, on_round=stop)
    assert resume(out, make_model, data_of()).summary.finished


class CutError(Exception):
    pass


def cut(row: object) -> None:
    raise CutError


@pytest.mark.slow
def test_a_run_is_an_error_or_is_carried_on_or_makes_room(tmp_path):
    out, head = tmp_path / "run", played_to(tmp_path / "whole").ledger_head
    with pytest.raises(CutError):
        run(lambda: make_model(), data_of(), ONE, out, on_round=cut)
    with pytest.raises(RunError, match="must hold no run yet"):
        played_to(out)
    assert played_to(out, "resume").ledger_head == head
    assert played_to(out, "resume").ledger_head == head  # it is finished
    with pytest.raises(RunError, match=r"config\.toml must hold the settings"):
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
    with pytest.raises(RunError, match="must be new or empty"):
        played_to(other, "overwrite")
    assert (other / "chapter.txt").exists()
    out = tmp_path / "run"
    with pytest.raises(CutError):
        run(lambda: make_model(), data_of(), ONE, out, on_round=cut)
    RunFolder(out).queue_request("b", "retrain")
    with pytest.raises(RunError, match="1 requests to leave wait for an answer"):
        played_to(out, "overwrite")
    played_to(out, "resume")
    with pytest.raises(RunError, match="must not be overwritten"):  # proofs, and a salt to hand out
        played_to(out, "overwrite")
    with pytest.raises(ConfigError, match="exist must be one of"):
        played_to(tmp_path / "x", "replace")  # pyright: ignore[reportArgumentType]
    assert not (tmp_path / "x").exists()


@pytest.mark.slow
def test_a_sweep_is_that_of_the_command_line_and_goes_on_where_it_was_cut(covey, tmp_path):
    """Both find that the models do no better than guessing; the command exits with 1."""
    population = {"clients": 4, "examples_per_client": 10, "audit_examples": 20}
    swept = {**ONE, "population": population, "model": {"name": "linear"}}
    over, out = {"train.learning_rate": [0.1, 0.2]}, tmp_path / "python"
    (tmp_path / "one.toml").write_text(Config.of(swept).toml())
    covey("sweep", "one.toml", "--over", "train.learning_rate=0.1,0.2", "--out", "command")
    with pytest.raises(CutError):
        run(config={**swept, "train.learning_rate": 0.1}, out=out / "0.1-seed0", on_round=cut)
    swept_runs = sweep(swept, over, out=out)
    table = (out / "sweep.csv").read_text()
    assert table == (tmp_path / "command" / "sweep.csv").read_text()
    assert list(swept_runs.frame().columns) == list(
        csv.DictReader(table.splitlines()).fieldnames or ()
    )
    heads = {name: load(out / name).ledger_head for name in swept_runs.histories}
    sweep(swept, over, out=out)  # nothing is played again
    assert {name: load(out / name).ledger_head for name in heads} == heads
    with pytest.raises(ConfigError, match="must have these settings, found others"):
        sweep({**swept, "rounds": 3}, over, out=out)
