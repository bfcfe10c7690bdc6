"""The page and the table of what was found."""

import re
from dataclasses import replace
from html import unescape

import pytest

from covey.report.figures import svg
from covey_papers.reproduce.figures import drawn, write_page
from covey_papers.reproduce.record import Findings, Printed
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
