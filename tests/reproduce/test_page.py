"""The page and the table of what was found."""

import csv
import re
from dataclasses import replace
from html import unescape
from io import StringIO

import pytest

from covey.report.figures import svg
from covey_papers.reproduce.figures import as_csv, drawn, write_page
from covey_papers.reproduce.record import Findings, Printed, write_record
from covey_papers.reproduce.runner import records
from reproduce.tiny import cell, record

FOUND = Findings(
    cells=(
        cell("accuracy", "FedAvg", 0.5, 0.6, 0.7),
        cell(
            *("accuracy", "IFCA", 0.6, 0.7, 0.8),
            printed=Printed(0.9999, 0.02, "Table 1, row IFCA, column digits"),
            why="The paper trains on <other> digits.",
        ),
        cell("violations", "IFCA", 1.0, None, 2.0),
        cell(
            *("accuracy", "IFCA"),
            column="FEMNIST",
            reason="not played: femnist needs the file a.json",
        ),
    ),
    notes=("not played: femnist needs the file a.json", "A note of its own."),
    commits=("0123abcd", "4567cdef+"),
    seconds=90.0,
)
TABLE = record(found=FOUND)
BRIEF = replace(TABLE, quick=True, command="covey reproduce tiny --quick")


@pytest.fixture
def page(tmp_path):
    """Write a page over records, and return it without its looks."""

    def written(*shown) -> str:
        path = write_page(shown, tmp_path)
        assert path == tmp_path / "reproduction.html"
        html = path.read_text(encoding="utf-8")
        return re.sub(r"<style>.*?</style>|<!--.*?-->", "", html, flags=re.S)

    return written


def prose(html: str) -> str:
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", html)))


def test_a_page_says_where_its_numbers_come_from(page):
    said = prose(page(TABLE))
    for each in (
        TABLE.title,
        TABLE.paper,
        TABLE.command,
        TABLE.machine,
        TABLE.date,
        "digits: 2 rounds, 8 clients with 30 examples, mlp",
        "Seeds 0, 1, 2",
        "1.5 minutes of playing",
        "0123abcd, 4567cdef+",
        "A note of its own.",
    ):
        assert each in said


def test_a_page_has_the_table_and_why_columns_are_missing(page):
    html = page(TABLE)
    rows = re.findall(r"<tr>(<td>.*?)</tr>", html, flags=re.S)
    assert len(rows) == 3  # what was not played is no row
    said = prose(rows[1])
    assert "1.000 ± 0.020" in said
    assert "0.700" in said
    assert "above the interval. The paper trains on <other> digits." in said
    assert "unknown: some run has no such figure" in prose(rows[2])
    assert prose(html).count("not played: femnist needs the file a.json") == 1
    assert "<other>" not in html


def test_a_page_needs_nothing_but_itself(page, tmp_path):
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "tiny.svg").write_bytes(svg(drawn(TABLE)))
    html = page(TABLE, BRIEF)
    assert "://" not in html  # base64 has no colon
    assert "<script" not in html
    assert "<link" not in html
    sources = re.findall(r'src="(.*?)"', html)
    assert [each[:22] for each in sources] == ["data:image/svg+xml;bas"]


def test_only_a_quick_form_carries_the_warning(page):
    warning = "far smaller than the paper's"
    assert warning not in prose(page(TABLE))
    assert prose(page(TABLE, BRIEF)).count(warning) == 1
    assert warning in prose(page(BRIEF))


def test_an_experiment_and_its_quick_form_have_places_of_their_own(page):
    html = page(TABLE, BRIEF)
    places = re.findall(r'<h2 id="(.*?)"', html)
    assert places == ["tiny", "tiny-quick"]
    assert re.findall(r'href="#(.*?)"', html) == places


def test_what_was_not_played_at_all_is_told(page):
    said = prose(page(record(found=Findings(cells=FOUND.cells[-1:]))))
    assert "not played: femnist needs the file a.json" in said
    assert "nothing was played" in said


def test_records_of_a_folder_come_by_name(tmp_path):
    for each in (BRIEF, TABLE, replace(TABLE, name="another")):
        write_record(tmp_path / f"{each.stem}.json", each)
    assert [each.stem for each in records(tmp_path)] == ["another", "tiny-quick", "tiny"]


def test_a_csv_has_a_line_per_cell_with_every_value():
    rows = list(csv.DictReader(StringIO(as_csv(TABLE))))
    assert len(rows) == len(FOUND.cells)
    ifca = rows[1]
    assert ifca["printed"] == "0.9999"
    assert ifca["printed_deviation"] == "0.02"
    assert ifca["where"] == "Table 1, row IFCA, column digits"
    assert float(ifca["mean"]) == pytest.approx(0.7)
    low, high = (float(ifca[key]) for key in ("low", "high"))
    # t(0.975, 2) = 4.3027 times 0.1 / sqrt(3)
    assert (low, high) == (pytest.approx(0.4516, abs=1e-4), pytest.approx(0.9484, abs=1e-4))
    assert ifca["values"] == "0.6 0.7 0.8"
    assert rows[0]["printed"] == rows[0]["where"] == ""
    assert rows[2]["values"] == "1 unknown 2"
    assert rows[2]["mean"] == rows[2]["low"] == ""
    assert rows[3]["verdict"] == "not played: femnist needs the file a.json"
