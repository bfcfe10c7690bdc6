"""The papers' printed numbers, with the table, row and column they stand in."""

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from covey.errors import ConfigError
from covey_papers.reproduce.record import Printed

__all__ = ["Table", "paper_title", "printed_table"]

Table = Mapping[tuple[str, str], Printed]
"""Row and column to what is printed there."""


def paper_title(paper: str) -> str:
    """Return a paper's authors, title and year."""
    return str(_paper(paper)["title"])


def printed_table(paper: str, name: str) -> Table:
    """Return one of a paper's tables.

    Raises:
        ConfigError: the data file of that paper has no such table.
    """
    tables = _paper(paper)["tables"]
    if name not in tables:
        raise ConfigError(
            f"papers/{paper}.toml has no {name!r}, only {', '.join(tables)}. "
            f"Correct the experiment's `table`."
        )
    columns, rows = tables[name]["columns"], tables[name]["rows"]
    return {
        (row, column): _printed(value, f"{name}, row {row}, column {column}")
        for row, values in rows.items()
        for column, value in zip(columns, values, strict=True)
    }


def _printed(value: float | list[float], where: str) -> Printed:
    if isinstance(value, list):
        return Printed(value[0], value[1], where)
    return Printed(value, None, where)


def _paper(paper: str) -> dict[str, Any]:
    place = files("covey_papers.reproduce") / "papers" / f"{paper}.toml"
    return tomllib.loads(place.read_text(encoding="utf-8"))
