"""`covey runs`: the list, one run, and what may go of them."""

import shutil

import pytest


@pytest.fixture
def runs(ran, tmp_path):
    shutil.copytree(ran[0], tmp_path / "runs" / "one")


@pytest.mark.usefixtures("runs")
def test_the_list_is_found_where_runs_are_written(covey, answer, ran):
    told = answer("runs", "list")["runs"]
    assert [each["name"] for each in told] == ["one", "one/baseline"]
    assert told[0]["state"] == "finished"
    assert ran[1]["ledger_head"].startswith(told[0]["ledger_head"])
    code, out, _ = covey("runs", "list", "runs")
    assert code == 0
    assert "one/baseline" in out
    assert told[0]["ledger_head"] in out


@pytest.mark.usefixtures("runs")
def test_one_run_is_shown(covey, answer):
    assert answer("runs", "show", "one")["rounds_played"] == 3
    assert "is verified: yes" in covey("runs", "show", "one/baseline")[1]
    assert covey("runs", "show", "two")[0] == 2


@pytest.mark.usefixtures("runs")
def test_nothing_goes_without_yes(covey, answer, tmp_path):
    told = answer("runs", "prune", "--older-than", "0h")
    assert told["deleted"] == []
    assert told["size_bytes"] > 0
    code, out, _ = covey("runs", "prune", "--older-than", "0h", "--whole", "--yes")
    assert code == 0
    assert "deleted: runs/one" in out
    assert not (tmp_path / "runs" / "one").exists()


def test_mistakes_are_told(covey, tmp_path):
    (tmp_path / "runs").mkdir()
    assert "90d" in covey("runs", "prune", "--older-than", "soon")[2]
    assert "both" in covey("runs", "prune", "--states", "--whole")[2]
    assert covey("runs", "list", "nowhere")[0] == 2
    assert covey("runs", "list")[1] == "no runs were found\n"
