"""`covey reproduce`: what it lists, plays and leaves in its folder."""

import json
import re
import tomllib

import pytest

from cli.conftest import sets
from covey_papers.reproduce.specification import experiments

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
    told = answer("reproduce", "--list")["experiments"]
    known = experiments()
    assert [each["name"] for each in told] == list(known)
    for each in told:
        assert set(each) == {"name", "title", "minutes_quick", "minutes"}
        assert (each["minutes_quick"], each["minutes"]) == known[each["name"]].minutes
        assert re.search(rf"^\W*{each['name']}\W", out, flags=re.M)


def test_the_headline_is_one_object_with_known_keys(answer, tmp_path):
    told = answer("reproduce", "deniable-headline", "--out", "here")
    (found,) = told["experiments"]
    assert (found["name"], found["quick"]) == ("deniable-headline", False)
    assert all(set(row) == ROW for row in found["rows"])
    (named,) = (row for row in found["rows"] if "section 4" in row["column"])
    assert (named["paper"], named["covey"]) == ("500,769", "22.747")
    assert len(found["notes"]) == 1
    assert told["page"] == "here/reproduction.html"
    names = {path.name for path in (tmp_path / "here").iterdir()}
    assert names == {"deniable-headline.json", "deniable-headline.csv", "reproduction.html"}


@pytest.mark.slow
def test_what_is_set_reaches_every_run_and_runs_are_found_again(ask, covey, tmp_path):
    """Figure 8 with one column on digits."""
    told = ask(*WORDS, "--out", tmp_path)
    runs = [tomllib.loads(path.read_text()) for path in (tmp_path / "runs").glob("*/config.toml")]
    played = sorted((run["method"]["name"], run["seed"]) for run in runs)
    # one run of FedAvg is reference enough there
    assert played == [("fedavg", 0), ("ifca-mir", 0), ("ifca-mir", 1)]
    for run in runs:
        assert (run["rounds"], run["data"]["name"]) == (1, "digits")
        assert run["population"]["clients"] == 6
        assert run["population"]["minority_share"] == 0.1  # the column's
    (found,) = told["experiments"]
    assert found["quick"]
    assert {row["column"] for row in found["rows"]} == {"MNIST"}
    assert {row["row"] for row in found["rows"]} == {"IFCA-MIR", "FedAvg"}
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
