"""One page over everything that has been reproduced into a folder."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from covey.atomic_io import replace_whole
from covey.report import rendered
from covey_papers.reproduce.record import Record
from covey_papers.reproduce.table import words

__all__ = ["write_page"]

PAGE = "reproduction.html"


def write_page(records: Sequence[Record], out: Path) -> Path:
    """Write `reproduction.html`, which needs nothing beside it and no network."""
    places = {each.stem: out / "figures" / f"{each.stem}.png" for each in records}
    pictures = {
        stem: place.read_bytes() for stem, place in places.items() if place.is_file()
    }
    told = {"sections": [_section(each) for each in records]}
    page = rendered(PAGE, pictures, told, "covey_papers.reproduce")
    replace_whole(out / PAGE, page)
    return out / PAGE


def _section(record: Record) -> dict[str, Any]:
    """Return a record with its rows; columns not played stand above them by reason."""
    cells = record.found.cells
    return {
        "record": record,
        "rows": [words(cell) for cell in cells if cell.values],
        "reasons": list(dict.fromkeys(c.reason for c in cells if not c.values)),
        "minutes": record.found.seconds / 60,
    }
