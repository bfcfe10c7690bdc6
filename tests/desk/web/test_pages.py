"""Pages tell what the report tells, to a browser that was let in, by GET."""

import html
import os
import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import covey
from covey.api.pages import reported
from covey.report.page import write_report
from covey.runs.folder import RunFolder
from covey_desk.web.app import application
from covey_desk.web.guard import HEADERS
from covey_desk.web.runs import FollowedRun
from desk.web.conftest import ADDRESS, PORT, TestClient, Visitor
from desk.web.stories import HOSTILE_FOLDER, INERT, Scenario, written
from recorded import contents

Visit = Callable[[Path], Visitor]


def words(text: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", text)).split())


def pages_of(visitor: Visitor) -> list[str]:
    runs = visitor.runs().values()
    inner = [f"{run}{page}" for run in runs for page in ("", "/clients", "/proofs")]
    links = [
        link for path in inner for link in re.findall(r'href="(/runs/[^"]+)"', visitor.get(path))
    ]
    cases = re.findall(r'href="(/requests/[^"]+)"', visitor.get("/requests"))
    return ["/", "/requests", *cases, *dict.fromkeys([*inner, *links])]


@pytest.mark.slow
def test_every_page_opens_shows_names_as_text_and_changes_no_file(visitor: Visitor, shown: Path):
    before = contents(shown)
    pages = pages_of(visitor)
    assert any("/clients/" in path for path in pages)
    assert any("/proofs/" in path for path in pages)
    for path in pages:
        page = visitor.get(path)
        assert "<h1>" in page, path
        assert "<script>" not in page, path
    assert INERT in words(visitor.get(visitor.runs()[HOSTILE_FOLDER]))
    assert contents(shown) == before


@pytest.mark.parametrize(
    "path",
    [
        "/runs/nothing",
        "/runs/..%2f..%2fetc",
        "/runs/{key}/clients/nobody",
        "/runs/{key}/proofs/nothing",
        "/runs/{key}/proofs/..%2f..%2fconfig",
        "/runs/{key}/audit/..%2f..%2fconfig.svg",
        "/runs/{key}/pictures/nothing.svg",
        "/runs/{key}/pictures/..%2fconfig.svg",
        "/requests/nothing",
        "/static/..%2fapp.py",
        "/static/app.py",
    ],
)
def test_what_is_not_there_is_not_found(visitor: Visitor, path: str):
    key = visitor.runs()["real"].removeprefix("/runs/")
    answer = visitor.client.get(path.format(key=key))
    assert answer.status_code == 404
    assert "Nothing here" in answer.text


def parts(text: str) -> list[str]:
    """Return the words of a run's page from the first heading of the report's body on."""
    body = text[text.index('<section class="part"') :]
    return words(re.sub(r"<figure>.*?</figure>", "", body, flags=re.S)).split()


def test_a_run_says_live_what_its_report_says(visitor: Visitor, shown: Path, tmp_path: Path):
    run = reported(RunFolder(shown / "real"))
    report = parts(write_report([run], tmp_path / "report.html").read_text())
    live = parts(visitor.get(visitor.runs()["real"]))
    assert live[: len(report)] == report
    assert run.ledger_head in live


def test_a_changed_proof_is_said_to_be_one(shown: Path, tmp_path: Path, visit: Visit):
    run = shutil.copytree(shown / "real", tmp_path / "roots" / "real")
    proof = next((run / "proofs").glob("*.json"))
    proof.write_text(proof.read_text().replace('"retrain"', '"deny"'))
    visitor = visit(tmp_path / "roots")
    page = words(visitor.get(f"{visitor.runs()['real']}/proofs/{proof.stem}"))
    assert "failed. Do not rely on this proof" in page


def test_a_card_has_the_answers_that_a_plan_has(visitor: Visitor, shown: Path):
    run = covey.load(shown / "real")
    name, handle = sorted(run.names.items())[0]
    page = words(visitor.get(f"{visitor.runs()['real']}/clients/{handle}"))
    plan = run.plan(name)
    assert name in page
    for option in plan.options:
        possible = "yes" if option.possible else "no"
        seconds = f"{option.seconds:.1f} s"
        shown_so = f"{option.answer} {possible} {option.rounds_replayed} {seconds}"
        assert shown_so in page
        assert option.possible or option.reason in page


def test_a_change_within_a_tick_of_the_clock_is_seen(tmp_path: Path):
    with written(tmp_path / "live", Scenario()) as writer:
        run = FollowedRun("key", "live", tmp_path / "live")
        writer.play()
        ledger = run.folder.ledger_path
        with closing(sqlite3.connect(ledger)) as pages:  # free ones: it will not grow
            pages.executescript("CREATE TABLE t (x); INSERT INTO t VALUES (zeroblob(1e6))")
            pages.executescript("DROP TABLE t")
        assert len(run.look().history.rounds) == 1
        size, tick = ledger.stat().st_size, ledger.stat().st_mtime_ns
        writer.play()
        assert ledger.stat().st_size == size
        os.utime(ledger, ns=(tick, tick))  # as if no time had passed
        assert len(run.look().history.rounds) == 2


def test_a_run_that_another_process_writes_is_read_meanwhile(tmp_path: Path, visit: Visit):
    with written(tmp_path / "live", Scenario()) as writer:
        visitor = visit(tmp_path)
        run = visitor.runs()["live"]
        assert "Nothing was recorded" in visitor.get(run)
        for played in (1, 2, 3):
            writer.play()
            assert f"round {played} of 12" in words(visitor.get(run))
        card = f"{run}/clients/{writer.handles[0]}"
        assert "retrain yes" in words(visitor.get(card))
        assert "running" in words(visitor.get("/"))


PATHS = ("/", "/runs/any", "/static/page.css", "/nothing", "/runs/any/events")


@pytest.fixture
def stranger(tmp_path: Path) -> TestClient:
    return TestClient(application([tmp_path], PORT, lambda _: None), base_url=ADDRESS)


@pytest.mark.parametrize("path", PATHS)
def test_without_the_cookie_nothing_is_answered(stranger: TestClient, path: str):
    answer = stranger.get(path)
    assert answer.status_code == 401
    assert "covey serve printed" in answer.text


def test_a_link_lets_one_browser_in_and_the_next_one_is_told(tmp_path: Path):
    messages: list[str] = []
    app = application([tmp_path], PORT, messages.append)
    link = app.link
    first, second = (TestClient(app, base_url=ADDRESS) for _ in range(2))
    assert first.get(link).status_code == 200
    assert first.get("/").status_code == 200
    assert second.get(link).status_code == 401
    assert second.get("/").status_code == 401
    assert messages == [app.link]
    assert app.link != link
    assert second.get(messages[0]).status_code == 200


def test_the_address_bar_does_not_keep_the_token(tmp_path: Path):
    app = application([tmp_path], PORT, lambda _: None)
    answer = TestClient(app, base_url=ADDRESS).get(app.link, follow_redirects=False)
    assert answer.status_code == 303
    assert answer.headers["location"] == "/"
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert f"covey-{PORT}=" in cookie


@pytest.fixture(scope="module")
def outsider() -> TestClient:
    return TestClient(application([], PORT, lambda _: None), base_url=ADDRESS)


@given(
    token=st.text(st.characters(codec="utf-8"), max_size=60),
    value=st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=60),
)
def test_no_other_token_or_cookie_opens_anything(outsider: TestClient, token: str, value: str):
    answer = outsider.get("/", params={"token": token})
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers
    for cookie in (value, f"covey-{PORT}={value}"):
        assert outsider.get("/", headers={"cookie": cookie}).status_code == 401


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        f"evil.example:{PORT}",
        "127.0.0.1",
        f"127.0.0.1:{PORT + 1}",
        f"127.0.0.1:{PORT}.evil.example",
        f"127.0.0.1.evil.example:{PORT}",
        "",
    ],
)
def test_another_host_is_refused_even_with_the_cookie(visitor: Visitor, host: str):
    answer = visitor.client.get("/", headers={"host": host})
    assert answer.status_code == 400
    assert "<table" not in answer.text


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_nothing_but_reading_is_answered(visitor: Visitor, method: str, path: str):
    answer = visitor.client.request(method, path)
    assert answer.status_code == 405
    assert answer.headers["allow"] == "GET, HEAD"


def test_every_answer_has_the_headers_that_protect_it(visitor: Visitor, stranger: TestClient):
    answers = [visitor.client.get(path) for path in PATHS[:-1]]
    answers += [stranger.get("/"), visitor.client.post("/")]
    assert {answer.status_code for answer in answers} == {200, 401, 404, 405}
    for answer in answers:
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS
        assert "access-control-allow-origin" not in answer.headers
