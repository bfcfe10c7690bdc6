"""The papers' numbers, against the papers' own text where that is at hand."""

import os
import re
from pathlib import Path

import pytest

from covey_papers.reproduce.specification import printed_table

BESIDE_THE_REPOSITORY = Path(__file__).parents[3] / "shared" / "data"


@pytest.fixture(scope="module")
def read():
    """The text of a paper, from the folder `papers` beside the data sets'."""
    data = Path(os.environ.get("COVEY_DATA") or BESIDE_THE_REPOSITORY)
    folder = data.resolve().parent / "papers"

    def text(name: str) -> str:
        if not (folder / name).is_file():
            pytest.skip(f"the papers' text is not here: {folder / name}")
        return (folder / name).read_text(encoding="utf-8")

    return text


def rows(text: str, table: str) -> dict[str, list[float]]:
    """The rows of a table, tab by tab: its numbers, deviations among them."""
    below = re.split(rf"^{table}: ", text, flags=re.M)[1]
    lines = re.split(r"\n\n", below)[1].splitlines()
    found: dict[str, list[float]] = {}
    method = ""
    for name, *cells in (line.split("\t") for line in lines):
        method = name or method
        numbers = [float(n) for c in cells for n in re.findall(r"\d+\.\d+|\d+", c)]
        kind = [c for c in cells[:1] if c.isalpha()]
        found[", ".join([method, *kind])] = numbers
    return found


@pytest.mark.parametrize("table", ["Table 2", "Table 3", "Table 4", "Table 5"])
def test_unlearnings_tables_are_the_papers_cell_by_cell(read, table):
    text = rows(read("deniable-unlearning.txt"), table)
    known = printed_table("deniable", table)
    assert len({row for row, _ in known}) == 8
    for name in {row for row, _ in known}:
        ours = [
            number
            for (row, _), cell in known.items()
            if row == name
            for number in (cell.value, cell.deviation)
            if number is not None
        ]
        assert ours == text[name]


@pytest.mark.parametrize("paper", ["preprint", "artman25"])
@pytest.mark.parametrize("table", ["Table 1", "Table 2"])
def test_both_texts_print_the_same_ifca_mir_tables(read, paper, table):
    text = rows(read(f"ifca-mir-{paper}.txt").replace("IFCA [9]", "IFCA"), table)
    known = printed_table("ifca-mir", table)
    for name in {row for row, _ in known}:
        ours = [cell.value for (row, _), cell in known.items() if row == name]
        assert ours == text[name]
