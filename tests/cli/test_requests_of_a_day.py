"""`covey requests`: the requests of one day, each answered in three commands at most."""

import json
import shutil
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

import covey as package
from cases.tiny import NAMES, SETS, SOLVED

PROGRAM = """
from cases.tiny import make_clients, make_model

def model():
    return make_model()

def clients():
    return make_clients()
"""
TODAY = date.today()


@pytest.fixture(autouse=True)
def own_keys(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.getbasetemp() / "keys"))


@pytest.fixture(scope="module")
def played(tmp_path_factory) -> Path:
    """A run that hides updates in sets, and one that is solved."""
    work = tmp_path_factory.mktemp("work")
    (work / "hospital.py").write_text(PROGRAM)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(work))
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.getbasetemp() / "keys"))
        import hospital  # pyright: ignore

        package.run(hospital.model, hospital.clients, SETS, work / "runs/sets")
        package.run(config=SOLVED, out=work / "runs/solved")
    return work


@pytest.fixture
def work(played, tmp_path, monkeypatch) -> Path:
    shutil.copytree(played / "runs", tmp_path / "runs")
    monkeypatch.syspath_prepend(str(played))
    return tmp_path


def statement(pack) -> str:
    page = (Path(pack["folder"]) / "statement.html").read_text()
    return " ".join(page.split())


def annex(pack) -> dict[str, Any]:
    return json.loads((Path(pack["folder"]) / "annex.json").read_text())


def test_the_twelve_requests_of_a_day(covey, ask, work):
    """Each is added, answered and closed: three commands; all are answered in one sitting."""
    covey(
        "export",
        "runs/sets",
        "--cluster",
        0,
        "--out",
        "given.safetensors",
        "--recipient",
        "Clinic N",
    )
    by_name = dict(zip("ABCDEF", NAMES, strict=True))
    came = {
        "withdrawal": [by_name["B"], "--basis", "withdrawal"],
        "erasure": [by_name["A"], "--basis", "erasure", "--reference", "letter 17"],
        "restriction": [by_name["C"], "--basis", "restriction"],
        "objection": [by_name["D"], "--basis", "objection"],
        "access": [by_name["E"], "--basis", "access"],
        "unknown": ["a stranger", "--basis", "erasure"],
        "duplicate": [by_name["A"], "--basis", "erasure"],
        "in German": [by_name["E"], "--basis", "access", "--language", "de"],
    }
    number = {name: ask("requests", "add", *words)["request"] for name, words in came.items()}
    assert ask("requests", "list", number["duplicate"])["repeats"] == [number["erasure"]]

    # a wrong date is refused where it cannot be, and corrected where it is another one
    late = (TODAY + timedelta(days=1)).isoformat()
    code, _, err = covey("requests", "add", by_name["F"], "--basis", "access", "--received", late)
    assert (code, "today at the latest" in err) == (2, True)
    assert (
        "YEAR-MONTH-DAY"
        in covey("requests", "add", by_name["F"], "--basis", "access", "--received", "31.1.2027")[2]
    )
    wrong = ask("requests", "add", by_name["F"], "--basis", "access")["request"]
    before = (TODAY - timedelta(days=9)).isoformat()
    told = ask("requests", "correct", wrong, "--received", before)
    assert (told["entry"]["received"], told["before"][0][0]["received"]) == (
        before,
        TODAY.isoformat(),
    )
    number["wrong date"] = wrong

    done = ask("requests", "answer")
    packs = {each["request"]: each for each in done["packs"]}
    says = {name: statement(packs[n]) for name, n in number.items()}
    assert says["erasure"].count('data-says="removed"') == 1
    assert says["erasure"].count('data-says="subtracted"') == 1
    assert "letter 17" in says["erasure"]
    assert "Clinic N" in says["erasure"], "the recipient of a model that is superseded"
    assert says["duplicate"].count("Your data are no longer in model") == 2
    assert "still holds what it learnt from your data" in says["withdrawal"]
    for name in ("restriction", "objection"):
        assert says[name].count("no round of model") == 2
        assert says[name].count("in rounds 1 to 2") == 2
        assert "to do by hand" not in says[name]
    for name in ("access", "wrong date"):
        assert says[name].count('data-says="holds"') == 2
    assert "No model of ours knows this name" in says["unknown"]
    assert "Unsere Antwort auf Ihren Antrag" in says["in German"]
    assert says["in German"].count("in den Runden 1 bis 2") == 2
    assert sum(1 for _ in work.glob("runs/*/proofs/*.json")) == 8, "nothing is answered twice"
    for pack in packs.values():
        for about in annex(pack)["runs"]:
            if "proof" in about:
                path = Path(pack["folder"]) / f"proof-{about['request']}.json"
                mine = ("--mine", annex(pack)["name"], about["salt"])
                assert covey("verify", path, *mine)[0] == 0

    for n in number.values():
        assert ask("requests", "close", n)["state"] == "closed"
    assert ask("requests", "list")["requests"] == []
    kept = b"".join(path.read_bytes() for path in work.glob("runs/requests/**/*") if path.is_file())
    assert not [name for name in NAMES if name.encode() in kept]
    rows = ask("requests", "export", "--since", before, "--out", "year.json")["requests"]
    assert len(rows) == 9
    assert not [name for name in NAMES if name in (work / "year.json").read_text()]

    # two at once, in one request; one of them was answered before, and is recognised
    two = ask("requests", "add", by_name["F"], by_name["A"], "--basis", "erasure")
    assert [each["ended"] for each in two["runs"]].count("before") == 2
    done = ask("requests", "answer")
    assert {each["answer"] for each in done["outcomes"]} == {"retrain", "subtract"}
    own, other = (statement(each) for each in done["packs"])
    assert own.count("Your data are no longer in model") == 2
    assert other.count("An earlier request of yours was answered") == 2
    assert ask("requests", "close", two["request"])["state"] == "closed"


def test_what_is_overdue_says_so_and_is_extended(covey, answer, tmp_path):
    (tmp_path / "runs").mkdir()
    add = ("requests", "add", "somebody", "--basis", "access", "--received")
    answer(*add, "2026-01-31")
    answer(*add, TODAY.isoformat())
    code, out, _ = covey("requests", "list", "--due", "--json")
    assert code == 1
    assert json.loads(out)["requests"][0]["due"] == "2026-02-28"
    assert "OVERDUE" in covey("requests", "list", "--due")[1]
    answer("requests", "close", "1", "--reason", "no run knows the name")
    assert covey("requests", "list", "--due")[0] == 0
    reason = ("--reason", "many runs", "--extended", TODAY.isoformat())
    told = answer("requests", "correct", "2", *reason)
    assert (told["entry"]["extended"], told["entry"]["reason"], told["days_left"] > 80) == (
        TODAY.isoformat(),
        "many runs",
        True,
    )
    assert "extended on" in covey("requests", "list", "2")[1]


def test_open_requests_keep_their_runs(answer, work):
    shutil.rmtree(work / "runs" / "sets")
    answer("requests", "add", NAMES[0], "--basis", "access")
    told = answer("runs", "prune", "--older-than", "0h", "--whole", "--yes")
    assert told["deleted"] == []
    assert all("request 1" in each["kept"] for each in told["found"])


def test_mistakes_are_said(covey, tmp_path):
    assert "--register" in covey("requests", "list")[2]
    (tmp_path / "runs").mkdir()
    assert "requests add" in covey("requests", "list")[2]
    assert "erasure, withdrawal" in covey("requests", "add", "x", "--basis", "x")[2]
    assert covey("requests", "add", "x", "--basis", "access")[0] == 0
    assert "there are: 1" in covey("requests", "list", "9")[2]
    assert "nothing is answered" in covey("requests", "close", "1")[2]
    assert "answer takes auto" in covey("requests", "plan", "--answer", "x")[2]
