"""`covey requests`: an officer goes from the request to the letters by commands alone."""

import json
import shutil
from datetime import date, timedelta
from pathlib import Path

import pytest

import covey as package
from cases.tiny import ONE, SETS, SOLVED
from cases.tiny import PROGRAM as PLAIN

PROGRAM = """
from cases.tiny import make_clients, make_model

def model():
    return make_model()

def clients():
    return make_clients()
"""
RECEIVED = (date.today() - timedelta(days=3)).isoformat()
BY = ("--by", "Olga Officer")


@pytest.fixture(autouse=True)
def own_keys(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "keys"))


@pytest.fixture(scope="module")
def played(tmp_path_factory) -> Path:
    """A run that a program began by importable functions, one with sets, one solved."""
    work = tmp_path_factory.mktemp("work")
    (work / "hospital.py").write_text(PROGRAM)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(work))
        patch.setenv("XDG_CONFIG_HOME", str(work / "keys"))
        import hospital  # pyright: ignore

        package.run(hospital.model, hospital.clients, PLAIN, work / "runs/program")
        package.run(hospital.model, hospital.clients, SETS, work / "runs/sets")
    package.run(config=SOLVED, out=work / "runs/solved")
    return work


@pytest.fixture
def work(played, tmp_path, monkeypatch):
    shutil.copytree(played / "runs", tmp_path / "runs")
    monkeypatch.syspath_prepend(str(played))
    return tmp_path


def test_an_answer_that_cannot_be_is_told_and_another_one_is_given(covey, answer, work, tmp_path):
    shutil.rmtree(work / "runs" / "sets")
    shutil.rmtree(work / "runs" / "solved")
    answer("requests", "add", ONE, "--received", RECEIVED, "--basis", "withdrawal")
    (planned,) = answer("requests", "plan")["runs"]
    assert planned["cases"][0]["answer"] == ""
    code, out, _ = covey("requests", "answer")
    assert code == 1
    assert "NOT ANSWERED" in out
    code, _, err = covey("requests", "letters", "1", *BY)
    assert (code, "requests answer 1" in err) == (2, True)
    with pytest.raises(AssertionError, match="found 'erase'"):
        answer("requests", "answer", "--answer", "erase")
    (done,) = answer("requests", "answer", "--answer", "retrain")["outcomes"]
    assert done["answer"] == "retrain"


@pytest.mark.usefixtures("work")
def test_from_the_request_to_the_letters(covey, answer, tmp_path):
    add = ("requests", "add", ONE, "--received", RECEIVED, "--basis", "erasure")
    told = answer(*add, "--owner", "Olga Officer", "--case", "A-7")
    assert (told["case"], told["state"], len(told["runs"])) == ("A-7", "open", 3)
    assert "by hand:" in covey("requests", "plan")[1]
    done = answer("requests", "answer")["outcomes"]
    assert {each["answer"] for each in done} == {"retrain", "subtract"}
    assert all((tmp_path / each["run"] / "report.html").is_file() for each in done)
    for each in done:
        assert covey("verify", each["proof"], "--ledger", each["run"])[0] == 0
    answer("requests", "item", "A-7", "the tape", "--kind", "backup")
    assert "OPEN: the tape" in covey("requests", "show", "A-7")[1]
    assert covey("requests", "close", "A-7", *BY)[0] == 2
    answer("requests", "sign", "A-7", "--all", *BY, "--kept", "by law")
    assert "kept: by law: the tape" in covey("requests", "show", "A-7")[1]
    (letter,) = answer("requests", "letters", "A-7", *BY)["letters"]
    assert ONE in Path(letter["path"]).read_text()
    told = answer("requests", "close", "A-7", *BY)
    assert told["state"] == "closed"
    assert not Path(letter["path"]).exists()
    assert answer("requests", "list")["cases"] == []
    (closed,) = answer("requests", "list", "--closed")["cases"]
    assert closed["name"] == "[erased]"
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert ONE.encode() not in kept.replace(b"hospital", b"")


def test_what_is_overdue_says_so(covey, answer, tmp_path):
    (tmp_path / "runs").mkdir()
    add = ("requests", "add", "somebody", "--basis", "none", "--received")
    answer(*add, "2026-01-31")
    answer(*add, date.today().isoformat())
    code, out, _ = covey("requests", "due", "--json")
    assert code == 1
    first, *_ = json.loads(out)["cases"]
    assert first["due"] == "2026-02-28"
    assert "OVERDUE" in covey("requests", "due")[1]
    assert len(answer("requests", "list")["cases"]) == 2
    answer("requests", "close", "1", *BY, "--reason", "no run knows the name")
    assert covey("requests", "due", "--days", "14")[0] == 0
    reason = ("--reason", "many", "--told", date.today().isoformat())
    assert answer("requests", "extend", "2", *reason)["extended"] == "many"
    assert answer("requests", "letters", "2", *BY)["letters"]


def test_open_cases_keep_their_runs(answer, work):
    answer("requests", "add", ONE, "--received", RECEIVED, "--basis", "none")
    told = answer("runs", "prune", "--older-than", "0h", "--whole", "--yes")
    assert told["deleted"] == []
    assert all("case 1" in each["kept"] for each in told["found"])


def test_mistakes_are_told(covey, tmp_path):
    assert "--register" in covey("requests", "list")[2]
    (tmp_path / "runs").mkdir()
    assert "requests add" in covey("requests", "list")[2]
    add = ("requests", "add", "x", "--received")
    assert "YEAR-MONTH-DAY" in covey(*add, "soon", "--basis", "none")[2]
    assert "erasure, withdrawal" in covey(*add, RECEIVED, "--basis", "x")[2]
    assert covey(*add, RECEIVED, "--basis", "none")[0] == 0
    assert "there are: 1" in covey("requests", "show", "9")[2]
    assert "neither" in covey("requests", "sign", "1", *BY)[2]
    assert covey("requests", "templates", "own")[0] == 0
    assert (tmp_path / "own" / "letterhead.html").is_file()
    assert "which is there" in covey("requests", "templates", "own")[2]
    assert "answer takes auto" in covey("requests", "plan", "--answer", "x")[2]
