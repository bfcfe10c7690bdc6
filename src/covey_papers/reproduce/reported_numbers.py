"""What follows from the second paper's printed tables, and what does not."""

import math
from collections.abc import Iterator

from covey_papers.reproduce.papers import Table, printed_table
from covey_papers.reproduce.provenance import commit
from covey_papers.reproduce.record import Cell, Found, Printed
from covey_papers.reproduce.specification import Experiment

__all__ = ["arithmetic"]

CLAIM = {"least": 1.6, "most": 500_769.0, "named": 500_769.0}
"""The abstract: "1.6-500769 times"; section 4: "k = 8 for FMNIST in noniid setting"."""
TIMES = "times faster"
TABLES = {"Table 4": "LeNet-5", "Table 5": "ResNet-mini"}


def arithmetic(experiment: Experiment) -> Found:
    """Divide the printed seconds of fedAvg by those of every k, cell by cell."""
    cells = [
        cell
        for name, model in TABLES.items()
        for cell in _ratios(printed_table(experiment.paper, name), model)
    ]
    ratios = {(c.row, c.column): c.known[0] for c in cells}
    named = ratios["ResNet-mini, FMNIST-noniid", "k=8"]
    least, most = min(ratios.values()), max(ratios.values())
    claims = [
        _claim("least", least),
        _claim("most", most),
        _claim("named", named),
    ]
    both = _follows(CLAIM["least"], least) and _follows(CLAIM["most"], most)
    note = (
        f"The printed cells give {least:.2f} to {most:,.0f} times; the cell that the text "
        f"names gives {named:.1f}. The claimed {CLAIM['least']} to {CLAIM['most']:,.0f} "
        f"{'are' if both else 'are not'} the ends of that range. A denial's seconds are "
        f"those of removing a name, and a ratio to them is one of training to that."
    )
    return Found(cells=(*claims, *cells), notes=(note,), commits=(commit(),))


def _ratios(table: Table, model: str) -> Iterator[Cell]:
    for (row, column), printed in table.items():
        if column != "fedAvg":
            ratio = table[row, "fedAvg"].value / printed.value
            yield Cell(f"{model}, {row}", column, TIMES, (ratio,))


def _follows(claim: float, found: float) -> bool:
    """Whether the printed seconds, rounded as they are, give this factor."""
    return math.isclose(claim, found, rel_tol=0.01)


def _claim(which: str, found: float) -> Cell:
    where = {
        "least": "abstract, lower end",
        "most": "abstract, upper end",
        "named": "section 4, k = 8, FMNIST, non-iid",
    }[which]
    claimed = Printed(CLAIM[which], None, where)
    says = "" if _follows(CLAIM[which], found) else "not what the printed cells give"
    return Cell("claimed", where, TIMES, (found,), claimed, says=says)
