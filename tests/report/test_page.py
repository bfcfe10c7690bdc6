import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from covey import History
from covey.report.page import write_report
from covey.report.queries import Reported

CONFIG = """seed = 3
[method]
name = "ifca-mir"
selection = "threshold"
[population]
exclude = ["client-00007", "hospital-berlin"]
"""


@pytest.fixture(scope="module")
def pages(
    histories: dict[str, History], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("pages")
    return {
        kind: write_report(
            [Reported(kind, histories[kind], CONFIG)], folder / kind / "report.html"
        ).read_text()
        for kind in ("two clusters", "refused", "unfinished")
    }


def prose(html: str) -> str:
    """Return the page's text without markup, styles and pictures."""
    return re.sub(r"\s+", " ", re.sub(r"<style>.*?</style>|<[^>]*>", " ", html, flags=re.S))


class Balance(HTMLParser):
    """Checks that tags close in the order in which they opened."""

    def __init__(self):
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object):
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str):
        assert self.open.pop() == tag


def test_a_page_is_whole_needs_nothing_but_itself_and_names_nobody(pages: dict[str, str]):
    for html in pages.values():
        assert "://" not in html  # base64 has no colon
        assert "<script" not in html
        assert "<link" not in html
        assert all(s.startswith("data:image/svg+xml") for s in re.findall(r'src="(.*?)"', html))
        parser = Balance()
        parser.feed(html)
        assert parser.open == []
        assert "client-00007" not in html
        assert "hospital-berlin" not in html
        assert "2 names are not shown" in html
        rows = re.findall(r"<tbody>(.*?)</tbody>", html, re.S)
        cells = re.findall(r"<td[^>]*>(.*?)</td>", "".join(rows), re.S)
        assert all(prose(cell).strip() for cell in cells)
        assert not re.search(r"\b(None|nan|Undefined)\b", prose(html))


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("refused", "refused: they do not match"),
        ("refused", "unknown: no model in use has a true risk: refused: they do not match"),
        ("unfinished", "unknown: it is measured when a run ends"),
        ("unfinished", "This run is not finished"),
    ],
)
def test_a_page_says_why_something_is_unknown(pages: dict[str, str], kind: str, why: str):
    assert why in prose(pages[kind])


def test_a_hostile_name_is_text(histories: dict[str, History], tmp_path: Path):
    run = Reported("<script>alert('x')</script>", histories["own data"], CONFIG)
    html = write_report([run], tmp_path / "report.html").read_text()
    assert "<script" not in html
    assert "&lt;script&gt;" in html
