"""A run whose model diverged, from the command line: it says so, and fails."""

import json

import pytest

SMALL = [
    word
    for setting in (
        *("train.learning_rate=5000", "rounds=2", "population.clients=6"),
        *("population.audit_examples=60", "model.name=mlp"),
    )
    for word in ("--set", setting)
]
FLAT = ("count", "count_lower", "count_exposed", "by_group", "clients")


@pytest.fixture
def diverged(covey):
    return covey("run", *SMALL, "--out", "run", "--json")


def test_run_report_and_resume_say_it_and_exit_with_1(covey, diverged):
    code, out, err = diverged
    assert code == 1
    told = json.loads(out)
    assert told["diverged"]
    assert {told["violations"][key] for key in FLAT} == {None}
    assert all(c["risk"] is c["true_risk"] is None for c in told["clusters"])
    assert "run: the model of cluster 0 diverged" in err
    code, out, err = covey("report", "run", "--json")
    assert code == 1
    assert [each["run"] for each in json.loads(out)["diverged"]][:1] == ["run"]
    assert "the model of cluster 0 diverged" in err
    assert covey("resume", "run")[0] == 1


def test_a_sweep_goes_on_and_exits_with_1(covey, tmp_path):
    (tmp_path / "s.toml").write_text(
        'rounds = 2\n[model]\nname = "mlp"\n[method]\nname = "fedavg"\n'
        "[population]\nclients = 6\naudit_examples = 60\n[train]\nlocal_epochs = 20\n"
    )
    code, out, err = covey(*("sweep", "s.toml", "--over", "train.learning_rate=1e30,0.3", "--json"))
    told = json.loads(out)
    assert code == 1
    assert len(told["runs"]) == 2  # the one after it was played
    assert [bool(row["diverged"]) for row in told["rows"]] == [True, False]
    assert [row["violations"] is None for row in told["rows"]] == [True, False]
    assert "diverged (round 1)" in err
