"""A client's page of its exposed records: its own, whole, and on no server's side."""

import re
from pathlib import Path
from typing import Any

import pytest

import covey as library
from cli.conftest import refused
from covey.report.page import write_exposed_records
from recorded import contents

CLIENT = "client-00002"
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
    return library.run(config=SETTINGS, out=tmp_path_factory.mktemp("runs") / "kept").folder


def test_the_page_lists_what_the_command_tells_and_the_run_knows_nothing_of_it(run, ask, tmp_path):
    before, page = contents(run), tmp_path / "own" / "page.html"
    told = ask("explain", "--records", run, CLIENT, "--share", 0.2, "--page", page)
    assert contents(run) == before
    assert page.stat().st_mode & 0o777 == 0o600
    text = page.read_text()
    rows = re.findall(r"<th scope=.row.>(\d+)</th>", text)
    assert [int(place) for place in rows] == [each["place"] for each in told["records"]]
    assert len(told["records"]) == 3  # 20% of 16
    assert set(re.findall(r"client-\d{5}", text)) == {CLIENT}
    assert not re.search(r"://|<script|<link|<img|url\(", text)


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


def test_a_page_in_the_runs_own_folder_is_refused(run):
    before, page = contents(run), run / "report" / "page.html"
    refused("on its own machine", "explain", "--records", run, CLIENT, "--page", page)
    assert contents(run) == before
