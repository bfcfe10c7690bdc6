"""Pages tell what the report tells, of runs in whatever state."""

import html
import os
import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import covey
from covey.api.pages import reported
from covey.report.page import write_report
from covey.runs.folder import RunFolder
from covey_desk.web.runs import FollowedRun
from desk.web.conftest import Visitor
from desk.web.stories import HOSTILE_FOLDER, INERT, Story, written
from recorded import contents

Visit = Callable[[Path], Visitor]


def words(text: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", text)).split())


def pages_of(visitor: Visitor) -> list[str]:
    runs = visitor.runs().values()
    inner = [f"{run}{each}" for run in runs for each in ("", "/clients", "/proofs")]
    links = [
        link for path in inner for link in re.findall(r'href="(/runs/[^"]+)"', visitor.get(path))
    ]
    cases = re.findall(r'href="(/requests/[^"]+)"', visitor.get("/requests"))
    return ["/", "/requests", *cases, *dict.fromkeys([*inner, *links])]


@pytest.mark.slow
def test_every_page_opens_shows_names_as_text_and_changes_no_file(visitor: Visitor, shown: Path):
    before = contents(shown)
    found = pages_of(visitor)
    assert any("/clients/" in path for path in found)
    assert any("/proofs/" in path for path in found)
    for path in found:
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
    with written(tmp_path / "live", Story()) as writer:
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
    with written(tmp_path / "live", Story()) as writer:
        visitor = visit(tmp_path)
        run = visitor.runs()["live"]
        assert "Nothing was recorded" in visitor.get(run)
        for played in (1, 2, 3):
            writer.play()
            assert f"round {played} of 12" in words(visitor.get(run))
        card = f"{run}/clients/{writer.handles[0]}"
        assert "retrain yes" in words(visitor.get(card))
        assert "running" in words(visitor.get("/"))
