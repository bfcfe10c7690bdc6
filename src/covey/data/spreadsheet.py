"""Tables in text as spreadsheets write them: commas, semicolons or tabs between, names first."""

import csv
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy import ndarray

from covey.base.errors import DataError
from covey.base.files import MEBIBYTE, read_text

_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs"}
LARGEST = 256 * MEBIBYTE
"""Bytes of one client's table."""


class Cells(NamedTuple):
    """A table as text; a comma is a decimal mark where none separates. Rows may be ragged."""

    separated: str
    decimal: str
    names: list[str]
    rows: list[list[str]]


def cells_of(text: str) -> Cells:
    """Return the cells of a table, without the blanks around them.

    Raises:
        csv.Error: it is malformed.
    """
    first = text.partition("\n")[0]
    separator = max(_SEPARATORS, key=first.count)
    rows = list(csv.reader(text.splitlines(), delimiter=separator, skipinitialspace=True))
    names, *others = [[cell.strip() for cell in row] for row in rows] or [[]]
    return Cells(_SEPARATORS[separator], "." if separator == "," else ",", names, others)


def read_columns(path: Path) -> dict[str, ndarray]:
    """Read a table of numbers; a column of whole numbers alone is one of int64.

    Raises:
        DataError: naming the row and the column where there is no number.
    """
    try:
        _, decimal, names, rows = cells_of(read_text(path, LARGEST))
    except (OSError, ValueError, csv.Error) as error:
        raise DataError(f"{path} must be a table as CSV, found {error}: write it anew.") from None
    if not all(names) or len({*names}) != len(names):
        raise DataError(f"{path} must have a name per column first, found {names}: correct it.")
    numbered = [(number, row) for number, row in enumerate(rows, 2) if any(row)]
    for number, row in numbered:
        if len(row) != len(names):
            raise DataError(
                f"{path} must have {len(names)} cells per line, as its first, found {len(row)} in "
                f"line {number}: correct it."
            )
    columns: dict[str, ndarray] = {}
    for place, name in enumerate(names):
        cells = [row[place].replace(decimal, ".") for _, row in numbered]
        for (number, _), cell in zip(numbered, cells, strict=True):
            try:
                float(cell)
            except ValueError:
                raise DataError(
                    f"{path} must have numbers alone, found {cell!r} in line {number}, column "
                    f"{name!r}: fill in or drop what lacks, and number words, the same at all "
                    f"clients."
                ) from None
        try:
            columns[name] = np.array([*map(int, cells)], dtype=np.int64)
        except (ValueError, OverflowError):
            columns[name] = np.array([*map(float, cells)], dtype=np.float64)
    return columns
