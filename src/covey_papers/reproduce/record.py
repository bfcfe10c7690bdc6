"""What an experiment found, beside what the paper prints."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean, stdev

from pydantic import TypeAdapter
from scipy.stats import t as student

from covey.atomic_io import replace_whole

__all__ = [
    "Cell",
    "Found",
    "Line",
    "Printed",
    "Record",
    "averaged",
    "read_record",
    "write_record",
]

Points = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Printed:
    """A number that a paper prints, and where.

    Attributes:
        deviation: the standard deviation that it prints beside it, if any.
        where: table, row and column.
    """

    value: float
    deviation: float | None
    where: str


@dataclass(frozen=True, slots=True)
class Cell:
    """One measure of one row and column.

    Attributes:
        measure: as a title.
        values: one per repeat; None where it is unknown.
        why: why the paper's number may lie elsewhere.
        reason: why there are no values at all: files that are missing.
        says: the verdict, where it is not about a paper's number in an interval.
    """

    row: str
    column: str
    measure: str
    values: tuple[float | None, ...]
    printed: Printed | None = None
    why: str = ""
    reason: str = ""
    says: str = ""

    @property
    def known(self) -> tuple[float, ...]:
        """The values that are known."""
        return tuple(value for value in self.values if value is not None)

    @property
    def mean(self) -> float | None:
        """Over the repeats; unknown if one of them is, or it would mislead."""
        whole = self.values and len(self.known) == len(self.values)
        return fmean(self.known) if whole else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """Student's 95% interval of the mean; None for a single repeat.

        mean +- t_{0.975, n-1} s / sqrt(n).
        """
        n = len(self.known)
        if self.mean is None or n < 2:
            return None
        half = float(student.ppf(0.975, n - 1)) * stdev(self.known) / math.sqrt(n)
        return self.mean - half, self.mean + half

    @property
    def verdict(self) -> str:
        """Say whether the paper's number lies within the interval, or why not."""
        if self.mean is None:
            return self.reason or "unknown: some run has no such figure"
        if self.says or self.printed is None:
            return self.says or "not printed as a number"
        low, high = self.interval or (math.nan, math.nan)
        if low <= self.printed.value <= high:
            return "within the interval"
        side = (
            "above the interval."
            if self.printed.value > high
            else "below the interval."
        )
        found = side if self.interval else "one run has no interval."
        return " ".join(filter(None, [found, self.why]))


@dataclass(frozen=True, slots=True)
class Line:
    """Points of a line in a figure.

    Attributes:
        panel: which axes it belongs to.
        bound: whether it is a theorem's and not measured.
    """

    panel: str
    name: str
    points: Points
    bound: bool = False


def averaged(repeats: Sequence[Sequence[tuple[int, float]]]) -> Points:
    """Return the mean of y over the repeats, at every x that all of them reached."""
    return tuple(
        (float(at[0][0]), fmean(y for _, y in at)) for at in zip(*repeats, strict=False)
    )


@dataclass(frozen=True, slots=True)
class Found:
    """What playing an experiment gave.

    Attributes:
        commits: of the code that the runs were played with.
        seconds: that playing them took, here or earlier.
    """

    cells: tuple[Cell, ...] = ()
    lines: tuple[Line, ...] = ()
    notes: tuple[str, ...] = ()
    commits: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def known(self) -> bool:
        """Whether anything was measured: data may be missing for every column."""
        return bool(self.lines) or any(cell.known for cell in self.cells)


@dataclass(frozen=True, slots=True)
class Record:
    """A finished experiment, as its page and tables show it.

    Attributes:
        quick: whether it is the scaled-down form.
        seeds: of the repeats.
        sizes: rounds, clients and images of each column, in words.
        axes: what a figure shows along and up.
    """

    name: str
    title: str
    paper: str
    shows: str
    quick: bool
    figure: str
    axes: tuple[str, str]
    seeds: tuple[int, ...]
    command: str
    machine: str
    date: str
    sizes: Mapping[str, str] = field(default_factory=dict[str, str])
    found: Found = Found()

    @property
    def stem(self) -> str:
        """How its files are called."""
        return f"{self.name}-quick" if self.quick else self.name

    @property
    def measures(self) -> Sequence[str]:
        """The measures in the order of the table."""
        return tuple(dict.fromkeys(each.measure for each in self.found.cells))


def read_record(path: Path) -> Record:
    """Read what `write_record` wrote."""
    return TypeAdapter(Record).validate_json(path.read_bytes())


def write_record(path: Path, record: Record) -> None:
    """Write a record, all of it or nothing."""
    text = json.dumps(asdict(record), indent=1, allow_nan=False)
    replace_whole(path, text.encode())
