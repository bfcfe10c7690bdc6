"""Means, intervals and verdicts, worked by hand, and records that come back whole."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey_papers.reproduce.figures import words
from covey_papers.reproduce.record import Cell, FigureLine, Findings, Printed, note, records
from reproduce.tiny import cell, record


def of(*values: float | None, printed: float | None = None, **told: str) -> Cell:
    there = None if printed is None else Printed(printed, None, "Table 1")
    return cell("accuracy", "IFCA", *values, printed=there, **told)


def test_students_interval_of_1_2_3():
    # mean 2, s = 1, t(0.975, 2) = 4.3027, 4.3027 / sqrt(3) = 2.4841
    found = of(1.0, 2.0, 3.0)
    assert found.mean == 2
    assert found.interval == pytest.approx((-0.4841, 4.4841), abs=1e-4)


@pytest.mark.parametrize("values", [(0.5, None, 0.7), (None,), ()])
def test_what_is_unknown_in_one_run_has_no_mean(values):
    found = of(*values, printed=0.6)
    assert found.mean is None
    assert found.interval is None
    assert found.verdict == "unknown: some run has no such figure"
    assert (words(found).covey, words(found).interval) == ("unknown", "-")


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
    found = Findings(
        cells=tuple(
            cell("m", name, *v, printed=p and Printed(*p), why=name, reason=name)
            for v, p, name in cells
        ),
        lines=tuple(FigureLine("a", name, tuple(p), bound) for p, name, bound in lines),
        notes=tuple(sizes),
        commits=tuple(sizes.values()),
        seconds=seconds,
    )
    whole = record(sizes=sizes, found=found, quick=bool(cells), command="'a\"b'")
    with TemporaryDirectory() as folder:
        note(Path(folder) / "record.json", whole)
        assert records(Path(folder)) == [whole]
