"""`covey reproduce`: what it lists, refuses, plays and leaves in its folder."""

import json
import re
import tomllib

import pytest

from covey_papers.reproduce.specification import experiments

TINY = [
    word
    for setting in (
        "data.name=digits",
        "model.name=mlp",
        "rounds=1",
        "population.clients=6",
        "population.examples_per_client=20",
        "population.audit_examples=0",
        "population.holdout=0",
        "risk.name=none",
        "train.local_epochs=1",
        "method.initialisation=groups",
    )
    for word in ("--set", setting)
]
ROW = {"measure", "row", "column", "paper", "covey", "interval", "verdict"}


def test_the_list_names_every_experiment_and_its_minutes(covey, answer):
    code, out, _ = covey("reproduce", "--list")
    assert code == 0
    told = answer("reproduce", "--list")
    assert set(told) == {"experiments"}
    known = experiments()
    assert [each["name"] for each in told["experiments"]] == list(known)
    for each in told["experiments"]:
        assert set(each) == {"name", "title", "minutes_quick", "minutes"}
        of = known[each["name"]]
        assert (each["minutes_quick"], each["minutes"]) == of.minutes
        assert re.search(rf"^\W*{each['name']}\W", out, flags=re.M)


def test_the_headline_is_one_object_with_known_keys(answer, tmp_path):
    told = answer("reproduce", "deniable-headline", "--out", "here")
    assert set(told) == {"experiments", "page"}
    (found,) = told["experiments"]
    assert set(found) == {"name", "quick", "rows", "notes"}
    assert (found["name"], found["quick"]) == ("deniable-headline", False)
    assert all(set(row) == ROW for row in found["rows"])
    (named,) = (row for row in found["rows"] if "section 4" in row["column"])
    assert (named["paper"], named["covey"]) == ("500,769", "22.747")
    assert len(found["notes"]) == 1
    assert told["page"] == "here/reproduction.html"
    names = {path.name for path in (tmp_path / "here").iterdir()}
    assert names == {*("deniable-headline.json", "deniable-headline.csv", "reproduction.html")}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("table-9",), "There is no experiment 'table-9'"),
        (("ifca-mir-figure-8", "--column", "MNIST,"), "takes one of 'MNIST', 'FEMNIST'"),
        ((), "takes an experiment, `all`, or --list"),
        (("ifca-mir-figure-8", "--set", "rounds"), "--set takes section.key=value"),
        (("ifca-mir-figure-8", "--set", "round=1"), "Unknown setting 'round'"),
        (("ifca-mir-figure-8", "--repeats", "-1"), "--repeats"),
    ],
    ids=["experiment", "column", "nothing", "override", "setting", "repeats"],
)
def test_what_cannot_be_reproduced_is_refused_and_nothing_written(covey, tmp_path, words, said):
    code, out, err = covey("reproduce", *words, "--quick", "--out", "here")
    assert (code, out) == (2, "")
    assert said in err
    assert "Traceback" not in err
    assert not list(tmp_path.iterdir())


def test_a_column_is_refused_in_one_line(covey):
    _, _, err = covey("reproduce", "ifca-mir-figure-1", "--column", "15%")
    assert err.strip().splitlines() == [
        "covey: --column takes one of '10%', '30%', '50%', found '15%'."
    ]


@pytest.fixture(scope="module")
def tiny(ask, tmp_path_factory):
    """Figure 8 with one column on digits: (its folder, its --json)."""
    folder = tmp_path_factory.mktemp("reproduced")
    words = ("reproduce", "ifca-mir-figure-8", "--quick", "--column", "MNIST")
    return folder, ask(*words, "--repeats", "2", *TINY, "--out", folder)


def test_what_is_set_reaches_every_run(tiny):
    folder, told = tiny
    runs = [tomllib.loads(path.read_text()) for path in (folder / "runs").glob("*/config.toml")]
    played = sorted((run["method"]["name"], run["seed"]) for run in runs)
    # one run of FedAvg is reference enough there
    assert played == [("fedavg", 0), ("ifca-mir", 0), ("ifca-mir", 1)]
    for run in runs:
        assert run["rounds"] == 1
        assert run["data"]["name"] == "digits"
        assert run["population"]["clients"] == 6
        assert run["population"]["minority_share"] == 0.1  # the column's
    (found,) = told["experiments"]
    assert found["quick"]
    assert {row["column"] for row in found["rows"]} == {"MNIST"}
    assert {row["row"] for row in found["rows"]} == {"IFCA-MIR", "FedAvg"}


def test_the_record_says_how_to_ask_for_it_again(tiny):
    folder, told = tiny
    record = json.loads((folder / "ifca-mir-figure-8-quick.json").read_text())
    command = " ".join(
        ("covey reproduce ifca-mir-figure-8 --quick --column MNIST --repeats 2", *TINY)
    )
    assert record["command"] == command
    assert record["seeds"] == [0, 1]
    assert record["sizes"] == {"MNIST": "1 rounds, 6 clients with 20 examples, mlp"}
    assert command in (folder / "reproduction.html").read_text()
    names = {path.name for path in (folder / "figures").iterdir()}
    assert names == {"ifca-mir-figure-8-quick.svg"}
    assert told["page"] == str(folder / "reproduction.html")


def test_asked_again_it_finds_its_runs(tiny, covey):
    folder, _ = tiny
    words = ("reproduce", "ifca-mir-figure-8", "--quick", "--column", "MNIST")
    before = {p: p.stat().st_mtime_ns for p in (folder / "runs").rglob("*")}
    code, out, err = covey(*words, "--repeats", "2", *TINY, "--out", folder)
    assert code == 0
    assert err == ""  # no round was played
    assert "accuracy, minority" in out
    assert "reproduction.html" in out
    assert {p: p.stat().st_mtime_ns for p in (folder / "runs").rglob("*")} == before
