"""The papers' tables and figures beside covey's, from the records in docs/results."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple
from itertools import groupby
from pathlib import Path

from covey_papers.reproduce.figures import printed_first, words
from covey_papers.reproduce.record import Cell, ExperimentRecord, records
from covey_site.markdown import escaped, hidden_tree

ADDRESS = "results/reproduction"
SENTENCE = "`docs/results` has each paper's table"
"""How the sentence of docs/results.md begins that leads to this page on the site."""
HEAD = "| measure | row | column | paper | covey | 95% interval | verdict |"
OPENING = """\
# The papers' tables and figures

For readers of the papers. After this page you know, number by number, what a paper prints and
what covey measures.

Each number of covey is a mean over seeds, with Student's 95% interval. *MIA accuracy* is that of
a loss threshold, cross-fitted, against non-members of the same file, group and transform, unless
the measure's name says otherwise. Open a row for its table.
"""


def led() -> str:
    """Return how docs/results.md begins that sentence on the site."""
    return f"{hidden_tree([ADDRESS])}\n\n[A page of its own]({ADDRESS}.md) has each paper's table"


def reproduction_page(docs: Path) -> Mapping[str, str]:
    """Return the page by its address."""
    parts = [OPENING]
    for paper, group in groupby(records(docs / "results"), key=lambda record: record.paper):
        parts += [f"## {paper}", ""]
        parts += [line for record in group for line in _section(record, docs)]
    return {ADDRESS: "\n".join(parts)}


def _table(cells: Sequence[Cell]) -> Iterator[str]:
    """Yield a table of figures, if there are some."""
    if cells:
        yield from (HEAD, "|---" * (HEAD.count("|") - 1) + "|")
        rows = (astuple(words(cell)) for cell in cells)
        yield from (f"| {' | '.join(map(escaped, row))} |" for row in rows)
        yield ""


def _section(record: ExperimentRecord, docs: Path) -> Iterator[str]:
    """Yield one table or figure, closed: its title, then what is in it."""
    played = [cell for cell in record.findings.cells if cell.values]
    beside = [cell for cell in played if cell.printed and not cell.says]
    within = sum(cell.is_within for cell in beside)
    alone = sum(cell.interval is None for cell in beside)
    about = (
        f" Of the paper's {len(beside)} numbers {within} lie within the interval" if beside else ""
    )
    about += f", {alone} stand beside one run, which has none." if alone else "." if about else ""
    yield from ("<details>", f"<summary>{record.title}.{about}</summary>", "")
    yield from (escaped(" ".join(record.shows.split())), "")
    if (docs / "results" / "figures" / f"{record.stem}.svg").is_file():
        yield from (f"![{record.title}](figures/{record.stem}.svg)", "")
    first, others = printed_first(played)
    yield from _table(first)
    if others:
        count = f"{len(others)} figures that the paper does not print"
        yield from ("<details>", f"<summary>{count}</summary>", "")
        yield from (*_table(others), "</details>", "")
    reasons = dict.fromkeys(cell.reason for cell in record.findings.cells if not cell.values)
    yield from (
        f"- {escaped(each)}" for each in {**reasons, **dict.fromkeys(record.findings.notes)}
    )
    yield ""
    sizes = "; ".join(f"{column}: {size}" for column, size in record.sizes.items())
    yield f"`{record.command}`, seeds {', '.join(map(str, record.seeds))}, {record.date}."
    commit = record.findings.commits[0][:12]
    yield f"{sizes + '.' if sizes else ''} {record.machine}; commit {commit}."
    yield from ("", "</details>", "")
