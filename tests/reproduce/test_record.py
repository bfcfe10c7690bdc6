"""Records of experiments: means and verdicts by hand, the page, and what reasons speak of."""

import re
from dataclasses import replace
from html import unescape
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.report.figures import svg
from covey_papers.reproduce.figures import drawn, printed_first, words, write_page
from covey_papers.reproduce.record import Cell, FigureLine, Findings, Printed, note, records
from covey_papers.reproduce.specification import non_members_reason
from covey_papers.reproduce.theory import bound_verdict
from reproduce.tiny import cell, record


def of(*values: float | None, printed: float | None = None, **figures: str) -> Cell:
    reference = None if printed is None else Printed(printed, None, "Table 1")
    return cell("accuracy", "IFCA", *values, printed=reference, **figures)


def test_students_interval_of_1_2_3():
    # mean 2, s = 1, t(0.975, 2) = 4.3027, 4.3027 / sqrt(3) = 2.4841
    comparison = of(1.0, 2.0, 3.0)
    assert comparison.mean == 2
    assert comparison.interval == pytest.approx((-0.4841, 4.4841), abs=1e-4)


@pytest.mark.parametrize("values", [(0.5, None, 0.7), (None,), ()])
def test_what_is_unknown_in_one_run_has_no_mean(values):
    comparison = of(*values, printed=0.6)
    assert comparison.mean is None
    assert comparison.interval is None
    assert comparison.verdict == "unknown: some run has no such figure"
    assert (words(comparison).covey, words(comparison).interval) == ("unknown", "-")


@pytest.mark.parametrize(
    ("printed", "verdict"),
    [
        (2.0, "within the interval"),
        (-0.48, "within the interval"),
        (4.48, "within the interval"),
        (4.49, "above the interval. Because."),
        (-0.49, "below the interval. Because."),
        (None, "not printed as a number"),
    ],
)
def test_where_the_papers_number_lies(printed, verdict):
    assert of(1.0, 2.0, 3.0, printed=printed, why="Because.").verdict == verdict


finite = st.floats(allow_nan=False, allow_infinity=False)
said = st.text(st.characters(codec="utf-8"), max_size=8)
values = st.lists(st.none() | finite, max_size=3)
printed = st.none() | st.tuples(finite, st.none() | finite, said)
points = st.lists(st.tuples(finite, finite), max_size=3)


@given(
    st.lists(st.tuples(values, printed, said), max_size=3),
    st.lists(st.tuples(points, said, st.booleans()), max_size=2),
    st.dictionaries(said, said, max_size=2),
    finite,
)
def test_a_record_comes_back_as_it_was(cells, lines, sizes, seconds):
    findings = Findings(
        cells=tuple(
            cell("m", name, *v, printed=p and Printed(*p), why=name, reason=name)
            for v, p, name in cells
        ),
        lines=tuple(FigureLine("a", name, tuple(p), bound) for p, name, bound in lines),
        notes=tuple(sizes),
        commits=tuple(sizes.values()),
        seconds=seconds,
    )
    whole = record(sizes=sizes, findings=findings, quick=bool(cells), command="'a\"b'")
    with TemporaryDirectory() as folder:
        note(Path(folder) / "record.json", whole)
        assert records(Path(folder)) == [whole]


FINDINGS = Findings(
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
TABLE = record(findings=FINDINGS)
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
    shown, folded = html.split("<details>")
    assert [part.count("<tr><td>") for part in (shown, folded)] == [1, 2]
    assert "2 figures that the paper does not print" in prose(folded)
    said = prose(rows[0])
    assert "1.000 ± 0.020" in said
    assert "0.700" in said
    assert "above the interval. The paper trains on <other> digits." in said
    assert "unknown: some run has no such figure" in prose(rows[2])
    assert prose(html).count("not played: femnist needs the file a.json") == 1
    assert "<other>" not in html


def test_where_a_paper_prints_nothing_all_figures_stand_first():
    printed, verdict, neither = (
        FINDINGS.cells[1],
        replace(FINDINGS.cells[0], says="no"),
        FINDINGS.cells[2],
    )
    assert printed_first((neither, verdict, printed)) == ([verdict, printed], [neither])
    assert printed_first((neither,)) == ([neither], ())


def test_a_page_needs_nothing_but_itself(page, tmp_path):
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "tiny.svg").write_bytes(svg(drawn(TABLE)))
    html = page(TABLE, BRIEF)
    assert "://" not in html  # base64 has no colon
    assert "<script" not in html
    assert "<link" not in html
    sources = re.findall(r'src="(.*?)"', html)
    assert [source[:22] for source in sources] == ["data:image/svg+xml;bas"]


SHIFT = "distribution shift, not membership"


@pytest.mark.parametrize(
    ("matched", "pooled", "blind", "reasons"),
    [
        (0.51, 0.62, 0.63, SHIFT),
        (0.626, 0.64, 0.51, "distribution shift does not explain"),
        (0.626, 0.70, 0.60, "a part of the mixture's figure is distribution shift"),
        (0.50, 0.51, 0.50, "cannot be distinguished there either"),
    ],
)
def test_opposite_figures_get_opposite_reasons(matched, pooled, blind, reasons):
    reason = non_members_reason([matched], [pooled], [blind])
    assert reasons in reason
    others = {SHIFT, "does not explain", "a part of", "either"} - {reasons}
    assert not any(other in reason for other in others if other not in reasons)


@pytest.mark.parametrize(
    ("runs", "bound"),
    [
        ([True, True], "never above"),
        ([True, False], "ABOVE"),
        ([None, False], "ABOVE"),
        ([True, None], "not judged"),
        ([None], "not judged"),
    ],
)
def test_a_bound_that_was_not_tried_did_not_hold(runs, bound):
    assert bound in bound_verdict(runs)
