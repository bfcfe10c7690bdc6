"""What letters say, what the register counts as answered, and what a person still has to do."""

import csv
import json
import shutil
from datetime import date, timedelta

import pytest

import covey
from covey import ConfigError
from covey_desk import write_packs
from covey_desk.cli import lines_of_request
from covey_desk.lifecycle import (
    add_request,
    close_request,
    correct_request,
    done_by_hand,
    export_requests,
)
from covey_desk.pack import write_export
from covey_desk.register import read_register, register_at
from covey_desk.request import RunOfRequest
from desk.test_answering import all_done, go, only, request
from desk.test_pack import page_of, text_of
from desk.tiny import ONE, SETS, TWO, load, make_clients, make_model


@pytest.fixture
def sets(runs):
    """The run with anonymity sets, which can deny."""
    only(runs, "sets")
    return runs


def denied(runs, name, answer="deny") -> str:
    """Let a client leave by this answer, and return the salt, which only the client has then."""
    run = load(runs / "sets")
    run.forget(name, answer)
    (unacknowledged,) = run.unacknowledged
    run.acknowledge(unacknowledged.request)
    return unacknowledged.salt


@pytest.mark.parametrize("source", ["seeded", "os"])
@pytest.mark.parametrize("others", [(), ("retrain",)])
def test_an_erasure_after_a_denial_is_not_answered_and_the_letter_says_so(
    register, sets, others, source
):
    if source == "os":
        shutil.rmtree(sets / "sets")
        settings = SETS | {"secrets.source": "os"}
        covey.run(lambda: make_model(), make_clients(), settings, sets / "sets")
    unclear = source == "os" and others
    denied(sets, ONE)
    for answer in others:
        denied(sets, TWO, answer)
    add_request(register, [sets], [ONE], "erasure")
    assert go(register, sets) == ()
    assert request(register).state == "denied"
    assert [denial.ended for denial in request(register).denied] == [
        "unclear" if unclear else "denied"
    ]
    (pack,) = write_packs(register, load=load)
    text = text_of(page_of(pack))
    assert ("may still hold" if unclear else "model sets still holds") in text
    assert "compute it again without them (GDPR Art. 17)" in text
    with pytest.raises(ConfigError, match="give a reason"):
        close_request(register, [sets], "1", load=load)
    closed = close_request(register, [sets], "1", "the person has no salt", load=load)
    assert closed.state == "closed"


@pytest.mark.parametrize("when", ["added", "corrected"])
def test_a_salt_reopens_what_was_denied(register, sets, when):
    salt = denied(sets, ONE)
    salts = (salt,) if when == "added" else ()
    add_request(register, [sets], [ONE], "erasure", salts=salts)
    if when == "corrected":
        assert go(register, sets) == ()
        correct_request(register, [sets], "1", {"salts": (salt,)})
    assert request(register).waiting == 1
    (done,) = go(register, sets)
    assert (done.answer, request(register).state) == ("retrain", "answered")
    write_packs(register, load=load)
    all_done(register)
    close_request(register, [sets], "1", load=load)
    for path in register.rglob("*"):
        assert path.is_dir() or salt.encode() not in path.read_bytes()


@pytest.mark.parametrize(
    "answer", ["deny", "stop", "roll_back", "calibrate", "subtract", "retrain"]
)
def test_only_an_exact_answer_ends_an_erasure(register, tmp_path, answer):
    add_request(register, [tmp_path], [ONE], "erasure")
    with register_at(register) as held:
        held.note(RunOfRequest(request="1", person=ONE, run="/one", index=1, answer=answer))
        held.begin("1", "auto")
        exact = answer in ("subtract", "retrain")
        assert held.request("1").state == ("answered" if exact else "denied")


def test_other_requests_of_a_client_that_was_denied_are_answered(register, sets):
    denied(sets, ONE)
    for number, basis in enumerate(("objection", "restriction", "withdrawal", "access"), 1):
        add_request(register, [sets], [ONE], basis)
        go(register, sets, str(number))
        assert request(register, str(number)).state == "answered"
    assert "model sets still holds" in text_of(page_of(write_packs(register, load=load)[-1]))


@pytest.mark.parametrize("salt", ["", "xyz", "ab", "g" * 32])
def test_what_is_no_salt_is_refused(register, sets, salt):
    with pytest.raises(ConfigError, match="hexadecimal"):
        add_request(register, [sets], [ONE], "erasure", salts=(salt,))
    with pytest.raises(ConfigError, match="one client"):
        add_request(register, [sets], [ONE], "access", salts=("a" * 32,))


@pytest.fixture
def desk_file(tmp_path, monkeypatch):
    """Write the user's `desk.toml`."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    def write(text: str) -> None:
        (tmp_path / "config" / "covey").mkdir(parents=True, exist_ok=True)
        (tmp_path / "config" / "covey" / "desk.toml").write_text(text, "utf-8-sig")

    return write


@pytest.fixture
def ridge(runs):
    """The run of ridge heads, whose answers take least."""
    only(runs, "ridge")
    return runs


@pytest.mark.parametrize("language", ["en", "de"])
def test_a_letter_names_the_controller_the_article_and_what_is_missing(
    register, ridge, desk_file, language
):
    desk_file('[controller]\nname = "Clinic <b>N</b>"\nauthority = "Authority Z"\n')
    articles = {"erasure": "17", "withdrawal": "7", "restriction": "18", "objection": "21"}
    for number, basis in enumerate([*articles, "access"], 1):
        add_request(register, [ridge], ["nobody"], basis, language=language)
        go(register, ridge, str(number))
        (pack,) = write_packs(register, load=load)
        text = text_of(page_of(pack))
        assert f"Art. {articles.get(basis, '15')}" in text
        assert "Clinic <b>N</b>" in text
        assert "Authority Z" in text
        assert "________ (controller.contact)" in text
        annex = json.loads((pack.folder / "annex.json").read_text())
        assert annex["controller"]["address"] == "________ (controller.address)"


@pytest.mark.parametrize(
    "text",
    [
        "[operator]\n",
        "[controller]\nnane = 'x'\n",
        "controller = 1\n",
        "[",
        "[controller]\nname = 1",
    ],
)
def test_a_controller_that_cannot_be_is_refused_by_name(register, ridge, desk_file, text):
    desk_file(text)
    add_request(register, [ridge], ["nobody"], "erasure")
    go(register, ridge)
    with pytest.raises(ConfigError, match=r"desk\.toml"):
        write_packs(register, load=load)


def test_work_by_hand_takes_a_date_before_a_request_is_closed(register, ridge):
    yesterday = date.today() - timedelta(days=1)
    add_request(register, [ridge], [ONE], "erasure", yesterday)
    go(register, ridge)
    write_packs(register, load=load)
    items = {i for i, e in enumerate(request(register).by_hand, 1) if e.kind != "stays"}
    assert len(items) < len(request(register).by_hand), "what stays with its run takes no date"
    with pytest.raises(ConfigError, match=f"requests done 1 {min(items)}"):
        close_request(register, [ridge], "1", "in a hurry", load=load)
    for wrong in ((99,), (0,)):
        with pytest.raises(ConfigError, match="must be items 1 to"):
            done_by_hand(register, "1", wrong)
    for day in (date.today() + timedelta(days=1), yesterday - timedelta(days=1)):
        with pytest.raises(ConfigError, match="from receipt to today"):
            done_by_hand(register, "1", tuple(items), day)
    done_by_hand(register, "1", tuple(items), yesterday)
    (pack,) = write_packs(register, ["1"], load=load)
    assert f"looked through. Done on {yesterday:%d %B %Y}" in text_of(page_of(pack))
    assert close_request(register, [ridge], "1", load=load).state == "closed"
    with pytest.raises(ConfigError, match="closed"):
        done_by_hand(register, "1", ())


@pytest.mark.parametrize("basis", ["erasure", "restriction", "objection", "withdrawal"])
def test_whoever_received_a_model_is_to_be_notified_of_every_answer(register, sets, basis):
    load(sets / "sets").export(0, recipient="Clinic N")
    add_request(register, [sets], [ONE], basis)
    go(register, sets)
    (item,) = [item for item in request(register).by_hand if item.kind == "recipient"]
    assert "Clinic N" in item.sentence
    assert item.waits
    (pack,) = write_packs(register, load=load)
    text = text_of(page_of(pack))
    assert "Clinic N" in text
    assert ("(GDPR Art. 19)" in text) == (basis in ("erasure", "restriction"))


@pytest.mark.parametrize("language", ["en", "de"])
def test_access_names_recipients_and_what_covey_cannot_know(register, sets, language, tmp_path):
    run = load(sets / "sets")
    run.export(0, recipient=f"Clinic N for {TWO}")
    run.export(0, out=tmp_path / "elsewhere")
    add_request(register, [sets], [ONE, "nobody"], "access", language=language)
    go(register, sets)
    pack, stranger = write_packs(register, load=load)
    text = text_of(page_of(pack))
    assert "Clinic N for [another client]: model" in text
    assert text.count("________") >= 8
    assert "Clinic N" not in text_of(page_of(stranger))
    annex = (pack.folder / "annex.json").read_text()
    assert str(tmp_path) not in annex
    assert '"you"' not in annex
    assert "covey forget" not in annex


def test_the_annex_has_no_paths_of_the_server(register, ridge, tmp_path):
    load(ridge / "ridge").export(0, out=tmp_path / "some where" / "model", recipient="Clinic N")
    add_request(register, [ridge], [ONE], "erasure")
    go(register, ridge)
    (pack,) = write_packs(register, load=load)
    for text in (page_of(pack), (pack.folder / "annex.json").read_text()):
        assert str(tmp_path) not in text
        assert "some where" not in text
        assert "Clinic N" in text


def test_an_authority_gets_a_page_and_a_table_beside_the_facts(
    register, ridge, desk_file, tmp_path
):
    desk_file('[controller]\nname = "Clinic N"\n')
    add_request(register, [ridge], [ONE], "erasure", reference=f"letter of {ONE}")
    add_request(register, [ridge], ["nobody"], "access")
    go(register, ridge)
    with read_register(register) as held:
        rows = export_requests(held, date.min, date.today())
    write_export(rows, "2026", tmp_path / "year.json")
    page, table, facts = (tmp_path / f"year.{e}" for e in ("html", "csv", "json"))
    assert [e["answer"] for e in csv.DictReader(table.read_text().splitlines())] == [
        "subtract",
        "no run has the name",
    ]
    assert json.loads(facts.read_text())["controller"]["name"] == "Clinic N"
    assert "________ (controller.contact)" in page.read_text()
    assert "GDPR Art. 17, ridge: subtract on" in text_of(page.read_text())
    for file in (page, table, facts):
        assert ONE not in file.read_text()
        assert file.stat().st_mode & 0o777 == 0o600


def test_a_name_that_no_run_has_is_shown_with_the_nearest(register, ridge):
    for names in (["client-0003"], [ONE, "client-0003"]):
        shown = "\n".join(
            map(str, lines_of_request(add_request(register, [ridge], names, "erasure")))
        )
        assert "no run has client-0003: check its spelling, and --root. Do you mean" in shown
    add_request(register, [ridge], ["a stranger"], "access")
    changed = correct_request(register, [ridge], "3", {"names": ("client_00003",)})
    assert f"Do you mean {ONE!r}?" in "\n".join(map(str, lines_of_request(changed)))
