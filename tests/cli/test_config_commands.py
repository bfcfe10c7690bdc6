"""The commands `config`, `deploy` and `reproduce`."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from cli.conftest import needs_flower, refused, sets
from covey import Config
from covey.base.as_json import json_of
from covey.cli.answer import lines_of
from covey.settings.reference import settings
from covey_papers.reproduce.specification import experiments

WRONG = """
rounds = "10"
[train]
lerning_rate = 0.1
[method]
name = "ifca_mir"
momentum = nan
"""


def test_check_reports_every_mistake_of_a_file_and_of_what_is_set(covey, tmp_path):
    (tmp_path / "wrong.toml").write_text(WRONG, encoding="utf-8")
    words = ("config", "check", "wrong.toml", "--set", "seed=-1")
    code, out, err = covey(*words)
    assert (code, out) == (2, "")
    assert "5 mistakes" in err
    for part in ("found '10'", "train.learning_rate", "'ifca-mir'", "seed must be "):
        assert part in err
    assert [path.name for path in tmp_path.iterdir()] == ["wrong.toml"]
    code, out, _ = covey(*words, "--json")
    printed = json.loads(out)
    assert (code, printed["valid"], printed["unused_settings"]) == (2, False, None)
    problems = {problem["key"]: problem for problem in printed["problems"]}
    assert problems["rounds"]["value"] == "10"
    assert problems["rounds"]["expected"] == "an integer greater than 0"
    assert problems["train.lerning_rate"]["did_you_mean"] == "train.learning_rate"
    assert problems["method.momentum"]["value"] == "nan"  # which JSON cannot say


def test_what_init_writes_is_every_default_with_what_it_means(answer, covey, tmp_path):
    assert covey("config", "init", "--out", "new.toml")[0] == 0
    printed = answer("config", "check", "new.toml")
    assert (printed["valid"], printed["unused_settings"]) == (True, [])
    written = tomllib.loads((tmp_path / "new.toml").read_text(encoding="utf-8"))
    assert Config.of(written) == Config()
    assert written == {
        name: by_name(value) for name, value in Config().model_dump(mode="json").items()
    }
    code, out, _ = covey("config", "init")
    assert (code, tomllib.loads(out)) == (0, written)
    lines = out.splitlines()
    assert len(lines) <= 150  # three screens
    assert all(len(line) <= 100 for line in lines)
    assert all("  # " in line for line in lines if " = " in line)
    assert answer("config", "init")["text"] == out


def by_name(section):
    """A section in which components are their names."""
    if not isinstance(section, dict):
        return section
    return {
        key: value["name"] if isinstance(value, dict) else value for key, value in section.items()
    }


def test_the_schema_describes_every_setting_with_its_default(answer):
    schema = answer("config", "schema")
    described = {
        key: value
        for name, definition in schema["properties"].items()
        for key, value in settings_in(name, definition, schema["$defs"])
    }
    assert set(described) == {setting.key for setting in settings()}
    for setting in settings():
        assert setting.description.endswith(described[setting.key]["description"])
        assert described[setting.key].get("default") == setting.default


def settings_in(name, definition, sections):
    """Yield every setting in a part of the schema; a component's name is the component."""
    section = sections[definition["$ref"].split("/")[-1]] if "$ref" in definition else definition
    tables = [table for table in (section, *section.get("anyOf", ())) if "properties" in table]
    if not tables:
        yield name, definition
        return
    assert section["description"]
    for key, definition_inside in tables[0]["properties"].items():
        inside = name if key == "name" and "." in name else f"{name}.{key}"
        yield from settings_in(inside, definition_inside, sections)


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """A folder that has all that is on the PATH, and Flower's programs that do nothing."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("flower-supernode", "flower-superexec", "flwr-clientapp", "flwr"):
        (folder / name).touch(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


@needs_flower
def test_init_and_check_say_what_they_did(covey, answer, programs, tmp_path):
    (tmp_path / "c.toml").write_text("rounds = 3\n")
    words = ("deploy", "init", "c.toml", "--out", "fed", "--node", "client-00000", "--port", "8444")
    printed = answer(*words)
    node = tmp_path / "fed/nodes/client-00000"
    assert printed == {
        "folder": str(tmp_path / "fed"),
        "address": "127.0.0.1:8444",
        "nodes": {"client-00000": str(node)},
    }
    refused("must be new or empty", *words)

    code, out, _ = covey("deploy", "check", node)
    assert code == 0
    assert out.count("warning ") >= 2
    (node / "key").chmod(0o640)
    code, out, _ = covey("deploy", "check", node, "--json")
    checked = json.loads(out)
    assert (code, checked["valid"]) == (1, False)
    assert ("error", "permissions") in {(f["level"], f["about"]) for f in checked["findings"]}
    code, out, _ = covey("deploy", "check", node)
    rows = len(checked["findings"]) + len(checked["trust"])
    assert (code, len(out.splitlines())) == (1, rows + 5)


@needs_flower
@pytest.mark.parametrize("names", [True, False])
def test_what_a_trial_ends_with_is_true(names):
    """A proof was verified, whether it is still there or not; what is not there is not named."""
    from covey_flower.trial import Tried

    where = {"folder": Path("tried"), "proof": Path("tried/run/proofs/1.json")} if names else {}
    tried = Tried("carol", proof_holds=True, seconds=9.0, **where)
    lines = list(map(str, lines_of(tried)))
    assert lines[:2] == ["left: carol", "proof holds: yes"]
    assert len(lines) == 3 + len(where)
    assert json_of(tried).keys() == {"left", "proof_holds", "seconds", *where}


@needs_flower
def test_the_list_of_nodes_is_changed_by_two_commands(covey, answer, tmp_path):
    (tmp_path / "c.toml").write_text("rounds = 3\n")
    init = "deploy", "init", "c.toml", "--out", "fed", "--node", "alice", "--node", "bob"
    answer(*init)
    added = answer("deploy", "add", "fed", "carol")
    assert added["nodes"] == ["alice", "bob", "carol"]
    assert "register.sh" in added["next"]
    assert (tmp_path / "fed" / "nodes" / "carol" / "start.sh").is_file()
    removed = answer("deploy", "remove", "fed", "alice")
    assert removed["nodes"] == ["bob", "carol"]
    assert "covey forget RUN alice" in removed["next"]
    refused("list 'alice', found bob, carol:", "deploy", "remove", "fed", "alice")
    refused("each name once", "deploy", "add", "fed", "alice")


TINY = sets(
    *("data.name=digits", "model.name=mlp", "rounds=1", "risk.name=none"),
    *("population.clients=6", "population.examples_per_client=20", "population.holdout=0"),
    *("population.audit_examples=0", "train.local_epochs=1", "method.initialisation=groups"),
)
WORDS = ("reproduce", "ifca-mir-figure-6", "--quick", "--column", "MNIST", "--repeats", "2", *TINY)
ROW = {"measure", "row", "column", "paper", "covey", "interval", "verdict"}


def test_the_list_names_every_experiment_and_its_minutes(covey, answer):
    code, out, _ = covey("reproduce", "--list")
    assert code == 0
    listed = answer("reproduce", "--list")["experiments"]
    known = experiments()
    assert [experiment["name"] for experiment in listed] == list(known)
    for experiment in listed:
        assert set(experiment) == {"name", "title", "columns", "minutes_quick", "minutes"}
        assert (experiment["minutes_quick"], experiment["minutes"]) == known[
            experiment["name"]
        ].minutes
        assert re.search(rf"^\W*{experiment['name']}\W", out, flags=re.M)


def test_the_headline_is_one_object_with_known_keys(answer, tmp_path):
    printed = answer("reproduce", "deniable-headline", "--out", "here")
    (experiment,) = printed["experiments"]
    assert (experiment["name"], experiment["quick"]) == ("deniable-headline", False)
    assert all(set(row) == ROW for row in experiment["rows"])
    (named,) = (row for row in experiment["rows"] if "section 4" in row["column"])
    assert (named["paper"], named["covey"]) == ("500,769", "22.747")
    assert len(experiment["notes"]) == 1
    assert printed["page"] == "here/reproduction.html"
    names = {path.name for path in (tmp_path / "here").iterdir()}
    assert names == {"deniable-headline.json", "deniable-headline.csv", "reproduction.html"}


@pytest.mark.slow
def test_what_is_set_reaches_every_run_and_runs_are_found_again(ask, covey, tmp_path):
    """Figure 8 with one column on digits."""
    printed = ask(*WORDS, "--out", tmp_path)
    runs = [tomllib.loads(path.read_text()) for path in (tmp_path / "runs").glob("*/config.toml")]
    played = sorted((run["method"]["name"], run["seed"]) for run in runs)
    assert played == [("fedavg", 0), ("fedavg", 1), ("ifca-mir", 0), ("ifca-mir", 1)]
    for run in runs:
        assert (run["rounds"], run["data"]["name"]) == (1, "digits")
        assert run["population"]["clients"] == 6
        assert run["population"]["minority_share"] == 0.1  # the column's
    (experiment,) = printed["experiments"]
    assert experiment["quick"]
    assert {row["column"] for row in experiment["rows"]} == {"MNIST"}
    assert {row["row"] for row in experiment["rows"]} == {"IFCA-MIR", "FedAvg"}
    record = json.loads((tmp_path / "ifca-mir-figure-6-quick.json").read_text())
    assert record["command"] == " ".join(("covey", *WORDS))
    assert record["seeds"] == [0, 1]
    assert record["sizes"] == {"MNIST": "1 rounds, 6 clients with 20 examples, mlp"}
    assert record["command"] in (tmp_path / "reproduction.html").read_text()
    assert (tmp_path / "figures" / "ifca-mir-figure-6-quick.svg").is_file()
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "runs").rglob("*")}
    code, out, err = covey(*WORDS, "--out", tmp_path)
    assert (code, err) == (0, "")  # no round was played
    assert "accuracy, minority" in out
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "runs").rglob("*")} == before
