"""`covey reproduce`: the papers' tables and figures, beside what covey measures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from covey.base.as_json import HIDDEN
from covey.base.errors import ConfigError
from covey.cli.answer import Answer, Line, tabled
from covey.cli.app import console
from covey.cli.commands import RUNS, app
from covey.cli.progress import shown
from covey.cli.runs import SetOption

if TYPE_CHECKING:
    from covey_papers.reproduce.record import Record


@dataclass(frozen=True, slots=True)
class RowInWords:
    """A figure beside the paper's, as its table shows it."""

    measure: str
    row: str
    column: str
    paper: str
    covey: str
    interval: str
    verdict: str


@dataclass(frozen=True, slots=True)
class ExperimentMeasured:
    """One table or figure of a paper.

    Attributes:
        quick: whether it is the scaled-down form.
    """

    name: str
    quick: bool
    rows: Sequence[RowInWords]
    notes: Sequence[str]
    record: Record = field(metadata=HIDDEN)

    def lines(self) -> Iterator[Line]:
        """Yield what is shown, and the table."""
        from covey_papers.reproduce.figures import COLUMNS, words

        yield from (self.record.title, self.record.shows, "")
        if self.record.found.cells:
            yield tabled(COLUMNS, map(words, self.record.found.cells))
        yield from self.notes


@dataclass(frozen=True, slots=True)
class Reproduced(Answer):
    """What was measured anew.

    Attributes:
        page: over all records of the folder.
    """

    experiments: Sequence[ExperimentMeasured]
    page: Path

    def lines(self) -> Iterator[Line]:
        """Yield a table per experiment."""
        for each in self.experiments:
            yield from (*each.lines(), "")
        yield f"page: {self.page}"


@dataclass(frozen=True, slots=True)
class ExperimentListed:
    """A table or figure that can be measured.

    Attributes:
        minutes_quick: with `--quick`, about.
        minutes: in full, about.
    """

    name: str
    title: str
    minutes_quick: float
    minutes: float


@dataclass(frozen=True, slots=True)
class ExperimentsListed:
    """The papers' tables and figures."""

    experiments: Sequence[ExperimentListed]


@app.command(rich_help_panel=RUNS)
def reproduce(
    name: Annotated[str, typer.Argument(help="An experiment, or `all`; --list names them.")] = "",
    listed: Annotated[
        bool, typer.Option("--list", help="Name every experiment and its time.")
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="A small form, in at most three minutes.")
    ] = False,
    column: Annotated[
        list[str] | None, typer.Option("--column", help="Only this column; repeatable.")
    ] = None,
    repeats: Annotated[
        int,
        typer.Option(min=0, help="Seeds; 0: as the experiment has. A row with fewer keeps them."),
    ] = 0,
    overrides: SetOption = None,
    out: Annotated[
        Path, typer.Option("--out", help="For records, tables, figures and the page.")
    ] = Path("reproduction"),
    runs: Annotated[
        Path | None, typer.Option("--runs", help="For the runs; default OUT/runs.")
    ] = None,
) -> Reproduced | ExperimentsListed:
    """Measure a table or figure of the papers anew, and write the page over them all.

    A run that is on disk is not played again, whichever table asks for it; one that was
    stopped is carried on.
    """
    from covey_papers.reproduce.figures import words, write_page
    from covey_papers.reproduce.record import Shelf
    from covey_papers.reproduce.runner import Reproduction, records, reproduced
    from covey_papers.reproduce.specification import experiments

    if listed:
        known = experiments().items()
        return ExperimentsListed(
            [ExperimentListed(key, each.title, *each.minutes) for key, each in known]
        )
    if not name:
        raise ConfigError(
            "`covey reproduce` takes an experiment, `all`, or --list, which names them."
        )
    chosen = list(experiments()) if name == "all" else [name]
    shelf = Shelf(runs or out / "runs", shown)
    measured: list[ExperimentMeasured] = []
    for each in chosen:
        if len(chosen) > 1:
            console.print(each, style="bold", highlight=False)
        reproduction = Reproduction(
            each, quick, tuple(column or ()), repeats, tuple(overrides or ())
        )
        record = reproduced(reproduction, out, shelf)
        rows = [RowInWords(*words(cell)) for cell in record.found.cells]
        measured.append(
            ExperimentMeasured(record.name, record.quick, rows, record.found.notes, record)
        )
    return Reproduced(measured, write_page(records(out), out))
