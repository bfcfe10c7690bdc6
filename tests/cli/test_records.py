"""A client's page of its exposed records: its own, whole, and on no server's side."""

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import covey as library
from covey.report.page import write_exposed_records

SETTINGS: dict[str, Any] = {
    "rounds": 5,
    "population": {"clients": 5, "examples_per_client": 20, "minority_share": 0.25},
    "model": {"name": "linear"},
    "method": {"name": "fedavg"},
    "risk": {"name": "none"},
    "train": {"keep_losses": True},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "kept"
    library.run(config=SETTINGS, out=path)
    return path


def content(folder: Path) -> dict[Path, bytes]:
    return {each: each.read_bytes() for each in folder.rglob("*") if each.is_file()}


class Outline(HTMLParser):
    """The tags that are open, and the words of every cell."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.rows: list[list[str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "img"):
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] in (["td"], ["th"]):
            self.rows[-1].append(data)


def test_the_page_lists_what_the_command_tells_and_the_run_knows_nothing_of_it(run, ask, tmp_path):
    before, page = content(run), tmp_path / "own" / "page.html"
    told = ask("explain", "--records", run, "client-00002", "--share", 0.2, "--page", page)
    assert content(run) == before
    assert page.stat().st_mode & 0o777 == 0o600
    outline = Outline()
    outline.feed(page.read_text())
    assert outline.open == []
    head, *rows = outline.rows
    assert head == ["Rank", "Record", "Score, nats", "First loss", "Last loss"]
    assert [(r[0], r[1]) for r in rows] == [
        (str(r["rank"]), str(r["place"])) for r in told["records"]
    ]
    assert len(rows) == 3  # 20% of 16
    others = set(range(5)) - {2}
    text = page.read_text()
    assert not [i for i in others if f"client-{i:05}" in text]


def test_the_page_needs_nothing_but_itself(run, covey, tmp_path):
    covey("explain", "--records", run, "client-00002", "--page", tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    for word in ("://", "<script", "<link", "<img", "url("):
        assert word not in text
    assert '<html lang="en">' in text
    assert "prefers-color-scheme: dark" in text
    assert "color-scheme: light dark" in text
    assert len(re.findall("<h1>", text)) == 1
    assert all('scope="' in each for each in re.findall(r"<th\b[^>]*>", text))


def test_what_a_client_is_called_is_no_markup(tmp_path):
    name = '<script>alert("x")</script>'
    record = {"place": 1, "row": 7, "rank": 1, "score": 0.5, "first": 1.0, "last": 0.1}
    told = {"client": name, "held": 9, "rounds": 4, "score_meaning": "<b>", "median_score": 0.1}
    more = {"kept_in": "&", "rows_known": True, "records": [record]}
    text = write_exposed_records({**told, **more}, tmp_path / "page.html").read_text()
    assert "<script" not in text
    assert "<b>9</b>" in text
    assert "&lt;b&gt;" in text
    assert "<td>7</td>" in text


def test_a_page_in_the_runs_own_folder_is_refused(run, covey):
    before, page = content(run), run / "report" / "page.html"
    code, _, err = covey("explain", "--records", run, "client-00002", "--page", page)
    assert code == 2
    assert "on its own machine" in err
    assert content(run) == before


def test_people_get_a_table(run, covey):
    code, out, _ = covey("explain", "--records", run, "client-00002")
    assert code == 0
    assert "last" in out
    assert "The score is " in out
