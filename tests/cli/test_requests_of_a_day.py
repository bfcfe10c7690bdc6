"""`covey requests`: the requests of one day, each answered in three commands at most."""

import json
import shutil
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

import covey as package
from cli.conftest import refused
from desk.tiny import NAMES, RIDGE, SETS

PROGRAM = """
from desk.tiny import make_clients, make_model

def model():
    return make_model()

def clients():
    return make_clients()
"""
TODAY = date.today()


@pytest.fixture(scope="module")
def played(tmp_path_factory) -> Path:
    """A run that hides updates in sets, and one of ridge heads."""
    work = tmp_path_factory.mktemp("work")
    (work / "hospital.py").write_text(PROGRAM)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(work))
        import hospital  # pyright: ignore

        package.run(hospital.model, hospital.clients, SETS, work / "runs/sets")
        package.run(config=RIDGE, out=work / "runs/ridge")
    return work


@pytest.fixture
def work(played, tmp_path, monkeypatch) -> Path:
    shutil.copytree(played / "runs", tmp_path / "runs")
    monkeypatch.syspath_prepend(str(played))
    for run in (tmp_path / "runs").iterdir():  # what is copied asks again
        package.load(run, trust_code=True)
    return tmp_path


def statement(pack) -> str:
    page = (Path(pack["folder"]) / "statement.html").read_text()
    return " ".join(page.split())


def annex(pack) -> dict[str, Any]:
    return json.loads((Path(pack["folder"]) / "annex.json").read_text())


@pytest.mark.slow
def test_the_requests_of_a_day(covey, ask, work):
    """Each is added, answered and closed: three commands; all are answered in one sitting."""
    place = ("--out", "given.safetensors", "--recipient", "Clinic N")
    covey("export", "runs/sets", "--cluster", 0, *place)
    by_name = dict(zip("ABCDEF", NAMES, strict=True))
    requests = {
        "withdrawal": [by_name["B"], "--basis", "withdrawal"],
        "erasure": [by_name["A"], "--basis", "erasure", "--reference", "letter 17"],
        "unknown": ["a stranger", "--basis", "erasure"],
        "duplicate": [by_name["A"], "--basis", "erasure"],
        "in German": [by_name["E"], "--basis", "access", "--language", "de"],
    }
    number = {name: ask("requests", "add", *words)["request"] for name, words in requests.items()}
    assert ask("requests", "list", number["duplicate"])["repeats"] == [number["erasure"]]

    # a wrong date is refused where it cannot be, and corrected where it is another one
    late = (TODAY + timedelta(days=1)).isoformat()
    add = ("requests", "add", by_name["F"], "--basis", "access")
    refused("today at the latest", *add, "--received", late)
    refused("YEAR-MONTH-DAY", *add, "--received", "31.1.2027")
    number["wrong date"] = wrong = ask(*add)["request"]
    before = (TODAY - timedelta(days=9)).isoformat()
    corrected = ask("requests", "correct", wrong, "--received", before)
    assert corrected["entry"]["received"] == before

    packs = {pack["request"]: pack for pack in ask("requests", "answer")["packs"]}
    says = {name: statement(packs[n]) for name, n in number.items()}
    assert says["erasure"].count('data-says="removed"') == 1
    assert says["erasure"].count('data-says="subtracted"') == 1
    assert "letter 17" in says["erasure"]
    assert "Clinic N" in says["erasure"], "the recipient of a model that is superseded"
    assert says["duplicate"].count("Your data are no longer in model") == 2
    assert "still holds what it learnt from your data" in says["withdrawal"]
    assert says["wrong date"].count('data-says="holds"') == 2
    assert "none has this name" in says["unknown"]
    assert "Unsere Antwort auf Ihren Antrag" in says["in German"]
    assert says["in German"].count("in den Runden 1 bis 2") == 2
    assert sum(1 for _ in work.glob("runs/*/proofs/*.json")) == 4, "nothing is answered twice"
    held = annex(packs[number["erasure"]])
    for about in held["runs"]:
        path = Path(packs[number["erasure"]]["folder"]) / f"proof-{about['request']}.json"
        assert covey("verify", path, "--mine", held["name"], about["salt"])[0] == 0

    for n in number.values():
        by_hand = ask("requests", "list", n)["by_hand"]
        items = [i for i, item in enumerate(by_hand, 1) if item["kind"] != "stays"]
        if items:
            refused("has no date", "requests", "close", n)
            ask("requests", "done", n, *items)
        assert ask("requests", "close", n)["state"] == "closed"
    assert ask("requests", "list")["requests"] == []
    queued = b"".join(
        path.read_bytes() for path in work.glob("runs/requests/**/*") if path.is_file()
    )
    assert not [name for name in NAMES if name.encode() in queued]
    rows = ask("requests", "export", "--since", before, "--out", "year.json")["requests"]
    assert len(rows) == 6
    for kind in ("json", "html", "csv"):
        assert not [name for name in NAMES if name in (work / f"year.{kind}").read_text()]

    # who was answered before is recognised
    again = ask("requests", "add", by_name["A"], "--basis", "erasure")
    assert [run["ended"] for run in again["runs"]] == ["before"] * 2


def test_what_is_overdue_says_so_and_is_extended(covey, answer, tmp_path):
    (tmp_path / "runs").mkdir()
    add = ("requests", "add", "somebody", "--basis", "access", "--received")
    answer(*add, "2026-01-31")
    answer(*add, TODAY.isoformat())
    code, out, _ = covey("requests", "list", "--due", "--json")
    assert code == 1
    assert json.loads(out)["requests"][0]["due"] == "2026-02-28"
    assert "OVERDUE" in covey("requests", "list", "--due")[1]
    answer("requests", "close", "1", "--reason", "no run has the name")
    assert covey("requests", "list", "--due")[0] == 0
    answer("requests", "correct", "2", "--reason", "many runs", "--extended", TODAY.isoformat())
    assert "extended on" in covey("requests", "list", "2")[1]
