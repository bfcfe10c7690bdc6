"""What commands print and write is what its JSON schema says, no key more or less.

The fixtures of the other suites here hold everything that they make a command print to
the schemas. Here is what these do not print, and what is written.
"""

import json
import shutil
from datetime import date
from pathlib import Path

import click
import numpy as np
import pytest

import covey as package
from cases.tiny import SOLVED
from covey.base.as_json import json_of
from covey.cli.commands import all_commands, loaded
from covey_site.schemas import ERROR, FILES, outputs
from json_schemas import check_json, check_printed

TINY = {
    "rounds": 4,
    "population": {"clients": 4, "examples_per_client": 30, "audit_examples": 0},
    "model": {"name": "linear"},
    "method": {"name": "fedavg"},
    "train": {"keep_losses": True},
    "risk": {"name": "none"},
}
LAST = "client-00002"
TODAY = date.today().isoformat()


@pytest.fixture(autouse=True)
def own_keys(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "keys"))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Path:
    """A run of four rounds that keeps losses, only to be read."""
    return package.run(config=TINY, out=tmp_path_factory.mktemp("tiny") / "one").folder


@pytest.fixture
def runs(tiny, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(tiny, tmp_path / "runs" / "one")
    return tmp_path / "runs"


def commands(name: str, command: click.Command):
    yield name, command
    for below, each in getattr(command, "commands", {}).items():
        yield from commands(f"{name} {below}", each)


def test_every_command_with_json_has_a_schema_and_every_schema_a_command():
    whole = all_commands()
    found = {
        path: {option for each in command.params for option in each.opts}
        for name in whole.list_commands(click.Context(whole))
        for path, command in commands(name, loaded(name))
    }
    told = {path for path, options in found.items() if "--json" in options}
    assert len(told) > 30
    assert told == outputs().keys() - {ERROR}


HEAD = {"size": 1, "origin": "o", "key": "k", "checkpoint": "c", "request": "r", "runs": {}}


@pytest.mark.parametrize(
    "told",
    [{k: v for k, v in HEAD.items() if k != "size"}, {**HEAD, "more": 1}, {**HEAD, "size": "1"}],
)
def test_a_key_too_few_or_too_many_and_a_wrong_type_are_found(told):
    check_printed(["ledger", "head"], HEAD)
    with pytest.raises(AssertionError):
        check_printed(["ledger", "head"], told)


def test_a_dataclass_has_all_of_its_keys_too():
    told = {"runs": [], "unreadable": {}}
    with pytest.raises(AssertionError, match="unknown"):
        check_json("requests plan", told)
    check_json("requests plan", {**told, "unknown": {}})


@pytest.mark.usefixtures("runs")
def test_what_is_told_of_a_run_and_its_keys(ask, covey, tmp_path):
    shown = ask("runs", "show", "runs/one")
    assert shown["rounds_played"] == 4
    assert ask("explain", "--records", "runs/one", LAST)["client"] == LAST
    assert ask("ledger", "head", "runs/one")["size"] == 1
    assert ask("ledger", "keys")["keys"]
    assert ask("ledger", "doctor", "runs/one") == {"damaged": [], "repaired": []}
    assert ask("runs", "list", "runs")["runs"][0]["name"] == "one"
    assert ask("runs", "prune", "runs", "--older-than", "0h")["found"]


@pytest.mark.slow
@pytest.mark.usefixtures("runs")
def test_what_a_run_and_its_answers_write(ask, covey, tmp_path):
    given = ask("forget", "runs/one", LAST, "--basis", "erasure")["answers"][0]
    check_json("proofs/REQUEST.json", json.loads(Path(given["proof"]).read_text()))
    receipt = json.loads(Path(given["receipt"]["path"]).read_text())
    check_json("receipts/REQUEST.json", receipt)
    left = ask("forget", "runs/one", "--received", given["request"])
    assert left["unacknowledged"] == []
    check_json("Run.summary", json_of(package.load("runs/one").summary))
    covey("report", "runs/one", "--out", "page.html", "--sign")
    check_json("report.json", json.loads(Path("page.json").read_text()))
    assert ask("verify", "page.json", "--ledger", "runs/one")["valid"]
    Path("page.html").write_text("safe")
    assert covey("verify", "page.json")[0] == 1


@pytest.mark.usefixtures("runs")
def test_what_is_told_of_a_request(ask):
    words = ("requests", "add", LAST, "--received", TODAY, "--basis", "erasure")
    number = ask(*words)["request"]
    assert ask("requests", "list", number)["entry"]["names"] == [LAST]
    listed = ask("requests", "list", "--due")["requests"]
    assert [each["request"] for each in listed] == [number]


def test_what_is_told_of_solved_heads(ask, tmp_path, monkeypatch, digits):
    monkeypatch.chdir(tmp_path)
    x, y = digits.inputs[:20].numpy(), digits.labels[:20].numpy()
    np.savez("more.npz", x=x, y=y)
    run = package.run(config=SOLVED, out="solved")
    name = min(run.names)
    ask("clients", "update", "solved", name, "--data", "more.npz", "--add")
    ask("explain", "solved", name)
    given = ask("forget", "solved", name, "--basis", "erasure")["answers"][0]
    proof = json.loads(Path(given["proof"]).read_text())
    assert proof["subtracted"]
    check_json("proofs/REQUEST.json", proof)


def test_what_is_told_of_settings_and_guarantees(ask, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert ask("config", "init")["text"]
    assert ask("config", "schema", "--out", "schema.json")["file"] == "schema.json"
    ask("guarantee", "--deniability", "--clients", 8, "--rounds", 3, "--requests", 2)


@pytest.mark.slow
def test_what_is_told_of_noise_that_is_put_to_the_test(ask, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    noisy = {**TINY, "rounds": 1, "privacy": {"client_noise": 1.0, "client_clip": 1.0}}
    package.run(config={**noisy, "train": {}}, out="noisy")
    assert ask("audit", "--epsilon", "noisy")["holds"]


@pytest.mark.parametrize("path", sorted(Path("docs/results").rglob("*.json")), ids=str)
def test_records_of_experiments_that_are_kept_here(path):
    name = "EXPERIMENT.json of covey reproduce"
    assert name in FILES
    check_json(name, json.loads(path.read_text()))
