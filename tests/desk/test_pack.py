"""What is handed over: sentences that facts choose, verified proofs, and text that is text."""

import json
import re
import shutil
import zipfile
from dataclasses import replace
from datetime import date, timedelta
from hashlib import sha256
from html import unescape
from pathlib import Path

import pytest

from covey import RunError, verify
from covey_desk import answer_requests, write_packs
from covey_desk.controller import read_controller
from covey_desk.lifecycle import add_request, correct_request
from covey_desk.pack import RunStatement, _templates
from covey_desk.register import register_at, register_of
from covey_desk.request import RegisterEntry, ToDo
from desk.tiny import ONE, THREE, load

DAY = date.today() - timedelta(days=3)
SCRIPT = "<script>alert('x')</script>"
SAID = ("removed", "subtracted", "never", "partly", "estimated", "denied", "stopped", "holds")
NEVER_SAID = ("compliant", "data erased", "forgotten", "proof of unlearning", "did not participate")
ENDED = ("before", "unclear", "elsewhere", "gone", "unreadable")


def text_of(page: str) -> str:
    body = page.partition("<body>")[2]
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", body)).split())


def answer(folder, runs, name=ONE, basis="erasure", **more):
    add_request(folder, [runs / "ridge"], [name], basis, DAY, **more)
    answer_requests(folder, [runs / "ridge"])


def page_of(pack) -> str:
    return (pack.folder / "statement.html").read_text()


@pytest.fixture
def own(register, runs) -> Path:
    """The folder of a register whose request the ridge run answered."""
    load(runs / "ridge").export(0, recipient=SCRIPT)
    answer(register, runs)
    return register


def test_a_pack_says_and_proves_what_was_answered(own):
    (pack,) = write_packs(own)
    assert [folder.stat().st_mode & 0o777 for folder in (pack.folder, own / "packs")] == [0o700] * 2
    page, annex = page_of(pack), json.loads((pack.folder / "annex.json").read_text())
    assert 'data-says="subtracted"' in page
    assert "Your data are no longer in model ridge" in text_of(page)
    assert not [word for word in NEVER_SAID if word in text_of(page).lower()]
    (about,) = annex["runs"]
    path = pack.folder / f"proof-{about['request']}.json"
    verification = verify(path, name_and_salt=(ONE, about["salt"]))
    assert {c.name: c.ok for c in verification.checks}["subject"]
    assert about["held_before"]["rounds_trained"] == [0, 1]
    assert f"receipt-{about['request']}.json" in annex["files"]
    assert annex["files"] == sorted(file.name for file in pack.folder.iterdir())
    with zipfile.ZipFile(pack.archive) as archive:
        inside = {Path(entry.filename).name: entry for entry in archive.infolist()}
        assert sorted(inside) == annex["files"]
        assert {entry.date_time[:3] for entry in inside.values()} == {date.today().timetuple()[:3]}
        assert archive.read(inside["statement.html"]).decode() == page
    assert pack.sha256 == sha256(pack.archive.read_bytes()).hexdigest()
    modes = [place.stat().st_mode & 0o777 for place in (pack.archive, pack.folder)]
    assert modes == [0o600, 0o700]


def test_recipients_and_names_are_text_whatever_is_in_them(own, runs):
    correct_request(own, [runs / "ridge"], "1", {"reference": f"{SCRIPT}&"})
    (pack,) = write_packs(own)
    assert "<script" not in page_of(pack)
    assert page_of(pack).count("&lt;script&gt;") == 2, "the reference, and the recipient once"


def test_access_says_what_is_held_and_changes_nothing(register, runs):
    before = (runs / "ridge" / "ledger.sqlite").read_bytes()
    answer(register, runs, THREE, "access", language="de")
    (pack,) = write_packs(register)
    page, annex = page_of(pack), json.loads((pack.folder / "annex.json").read_text())
    assert 'lang="de"' in page
    assert 'data-says="holds"' in page
    assert "in den Runden 1 bis 2" in text_of(page)
    assert annex["runs"][0]["held_before"]["places"]
    assert "proof" not in annex["runs"][0]
    assert (runs / "ridge" / "ledger.sqlite").read_bytes() == before


def test_a_name_that_no_run_has_gets_what_was_searched_and_not_that_nothing_is_held(register, runs):
    answer(register, runs, "client-3")  # as it may be misspelt
    (pack,) = write_packs(register)
    page = text_of(page_of(pack))
    assert "none has this name" in page
    assert "did not search" in page
    assert "hold nothing" not in page


def test_a_run_has_its_register_beside_itself_and_other_folders_have_it_inside(runs, monkeypatch):
    assert register_of(runs) == runs / "requests"
    assert register_of(runs / "ridge") == runs / "requests"
    monkeypatch.chdir(runs / "ridge")
    assert register_of(Path()) == runs / "requests"


LEFT = ("ledger", "data", "preferences", "copy", "deployment", "secret")
"""Kinds of places that a person has to see to."""


@pytest.mark.parametrize("language", ["en", "de"])
def test_every_fact_has_a_sentence_in_every_language(language):
    entry = RegisterEntry(names=("A",), received="2026-10-01", basis="objection", language=language)
    seen = set()
    for says in (*SAID, *ENDED):
        run = RunStatement("X", says, "2026-10-02", (1, 2, 4), 3, 2, 1)
        view = {"controller": read_controller(), "article": "21", "due": DAY, "recipients": ()}
        view |= {"name": "A", "entry": entry, "received": DAY, "today": DAY, "runs": [run]}
        left = [ToDo("place", "/x", kind, "how") for kind in LEFT]
        left += [ToDo("recipient", "R", "model", "X"), ToDo("run", "/y", "gone")]
        view |= {"left": [*left, ToDo("not listed", "logs")]}
        view |= {"has_proofs": True, "has_weaker": True, "weak": True}
        page = _templates().get_template(f"statement.{language}.html").render(view)
        (item,) = re.findall(r'<li data-says="\w+">(.*?)</li>', page, re.DOTALL)
        seen.add(" ".join(item.split()))
    assert all("X" in text for text in seen)
    assert len(seen) == len(SAID) + len(ENDED)


def test_nothing_is_handed_over_from_a_proof_that_fails_a_check(own, runs):
    """Not even if the register was told of the forged one."""
    (path,) = (runs / "ridge" / "proofs").glob("*.json")
    path.write_text(path.read_text().replace('"rounds_replayed": 1', '"rounds_replayed": 0'))
    with pytest.raises(RunError, match="SHA-256"):
        write_packs(own)
    with register_at(own) as held:
        (outcome,) = held.request("1").runs
        digest = sha256(path.read_bytes()).hexdigest()
        held.note(replace(outcome, proof_sha256=digest))
    with pytest.raises(RunError, match="signature"):
        write_packs(own)
    shutil.rmtree(runs / "ridge")
    with pytest.raises(RunError, match="restore the requester"):
        write_packs(own)
