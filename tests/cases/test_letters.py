"""Letters say what proofs say, escape what they are given, and take one's own templates."""

import re
import shutil
from datetime import date
from hashlib import sha256
from html import unescape
from pathlib import Path

import pytest

from cases.tiny import ONE, load
from covey import ConfigError, RunError, answer_cases, register_at
from covey.desk.answering import close_case
from covey.desk.case import AnswerBegun, RequestReceived, RunAnswered
from covey.desk.intake import add_case, add_item, extend_case, sign_items
from covey.desk.letters import write_letters
from covey.unlearning.proof import FORBIDDEN, read_proof
from covey.unlearning.proof_text import sentences

DAY = date(2026, 10, 1)
SCRIPT = "<script>alert('x')</script>"


def add(register, runs, name=ONE):
    return add_case(register, [runs / "solved"], name, DAY, "erasure")


def answer(register, runs):
    add(register, runs)
    load(runs / "solved").export(0, recipient=SCRIPT)
    answer_cases(register, [runs / "solved"], pages=False)
    return register


@pytest.fixture
def own(register, runs):
    """A case that the solved run answered, for oneself."""
    return answer(register, runs)


@pytest.fixture(scope="module")
def shared(three, tmp_path_factory, own_home):
    """The same, for whoever only writes letters."""
    folder = tmp_path_factory.mktemp("letters")
    runs = shutil.copytree(three, folder / "runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(own_home))
        with register_at(folder / "register") as register:
            yield answer(register, runs)


def proof_of(register) -> Path:
    (given,) = register.case("1").answered.values()
    return Path(register.text(given.run)) / "proofs" / f"{given.request}.json"


def written(register, **more) -> dict[str, str]:
    letters = write_letters(register, "1", "Olga", load=load, **more)
    return {each.path.name: each.path.read_text() for each in letters}


def text_of(page: str) -> str:
    body = page.partition("<body>")[2]
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", body)).split())


def test_every_sentence_of_the_proof_is_in_the_letter(shared):
    page = text_of(written(shared)["answer.html"])
    path = proof_of(shared)
    proof = read_proof(path.read_bytes())
    said = sentences(proof)
    for field in ("summary", "limits", "refuters", "left_to_do"):
        assert all(" ".join(each.split()) in page for each in said[field])
    assert said["claim"][0] in page
    assert proof.signature["fingerprint"] in page
    assert not [each for each in FORBIDDEN if each in page.lower()]


def test_proofs_and_receipts_lie_beside_the_letters(shared):
    written(shared)
    path = proof_of(shared)
    beside = shared.letters / "1" / f"proof-{path.name}"
    assert beside.read_bytes() == path.read_bytes()
    assert (shared.letters / "1" / f"receipt-{path.name}").is_file()


def test_what_is_signed_off_later_is_in_the_letter_written_later(shared):
    add_item(shared, "1", "backup", "the tape")
    assert "under way" in written(shared)["answer.html"]
    sign_items(shared, "1", [], "Olga", date(2026, 10, 9))
    page = written(shared)["answer.html"]
    assert "under way" not in page
    assert "2026-10-09" in page
    assert "the tape" not in page


def test_what_is_kept_is_counted_apart_with_its_reason(own):
    add_item(own, "1", "other", "the tape")
    items = add_item(own, "1", "other", "the old site").items
    others = sum(each.kind == "other" for each in items)
    sign_items(own, "1", [items[-2].item], "Olga", DAY, "in a safe", "<law> says so")
    assert f"Other places {others} 0; {others - 1} under way 1: <law> says so" in text_of(
        written(own)["answer.html"]
    )
    sign_items(own, "1", [], "Olga", DAY)
    page = written(own)["answer.html"]
    told = f"Other places {others} {others - 1}, the last on {DAY} 1: <law> says so"
    assert told in text_of(page)
    assert "<law>" not in page
    assert "in a safe" not in page


def test_names_are_text_whatever_is_in_them(register):
    register.record(
        [
            RequestReceived(case="1", person="p-1", received="2026-10-01", basis="none"),
            AnswerBegun(case="1", wanted="auto"),
        ],
        {"p-1": SCRIPT},
    )
    page = write_letters(register, "1", f"{SCRIPT}&")[0].path.read_text()
    assert "<script" not in page
    assert page.count("&lt;script&gt;") == 2


def test_recipients_are_told_without_the_name_and_escaped(shared):
    notice = written(shared)["notice-1.html"]
    assert ONE not in notice
    assert "<script" not in notice
    assert "&lt;script&gt;" in notice


def test_an_extension_has_its_reason_and_dates(register, runs):
    add(register, runs)
    with pytest.raises(ConfigError, match="requests answer 1"):
        written(register)
    extend_case(register, "1", f"{SCRIPT} eleven runs", DAY)
    (page,) = written(register).values()
    assert "2026-11-01" in page
    assert "2027-01-01" in page
    assert "&lt;script&gt;" in page


def test_a_refusal_has_its_reason_and_the_way_to_complain(register, runs):
    add(register, runs)
    (letter,) = write_letters(register, "1", "D. Officer", refused=f"{SCRIPT} twice")
    page = letter.path.read_text()
    assert "&lt;script&gt;" in page
    assert "twice" in page
    assert "supervisory authority" in page
    closed = close_case(register, [runs / "solved"], "1", "D. Officer", "asked twice", DAY)
    assert closed.is_closed
    assert not letter.path.exists()


def test_what_was_answered_is_not_refused(own):
    with pytest.raises(ConfigError, match="before any run is asked, found case 1 answered"):
        write_letters(own, "1", "D. Officer", refused="no")


def test_templates_of_ones_own_stand_in_place(shared, tmp_path):
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "letterhead.html").write_text("<p>Clinic {{ case }} North</p>")
    pages = written(shared, templates=folder)
    assert all("<p>Clinic 1 North</p>" in page for page in pages.values())
    for wrong in ("{{ nothing }}", "{% if %}", "{{ ''.__class__.__mro__ }}"):
        (folder / "letterhead.html").write_text(wrong)
        with pytest.raises(ConfigError, match="requests templates"):
            written(shared, templates=folder)
    with pytest.raises(ConfigError, match="--templates"):
        written(shared, templates=tmp_path / "none")


def test_no_letter_is_written_from_another_proof(own, runs):
    (path,) = (runs / "solved" / "proofs").glob("*.json")
    path.write_text(path.read_text().replace("subtract", "retrain"))
    with pytest.raises(RunError, match="SHA-256"):
        written(own)
    path.unlink()
    with pytest.raises(RunError, match="Restore it"):
        written(own)


def test_no_letter_is_written_from_a_proof_that_fails_a_check(own, runs):
    """Not even if the register was told of the forged one."""
    (path,) = (runs / "solved" / "proofs").glob("*.json")
    forged = path.read_text().replace('"rounds_replayed": 1', '"rounds_replayed": 0')
    path.write_text(forged)
    (given,) = own.case("1").answered.values()
    told = {name: getattr(given, name) for name in RunAnswered.__dataclass_fields__}
    told["proof_sha256"] = sha256(path.read_bytes()).hexdigest()
    own.record([RunAnswered(**told)])
    with pytest.raises(RunError, match="signature"):
        written(own)


def test_a_closed_case_has_no_letters(own, runs):
    sign_items(own, "1", [], "Olga")
    written(own)
    close_case(own, [runs / "solved"], "1", "Olga", load=load)
    with pytest.raises(ConfigError, match="before a case is closed"):
        written(own)
