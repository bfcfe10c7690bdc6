"""`covey reproduce`: the papers' tables and figures, beside what covey measures; `covey game`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

import click

from covey import ConfigError
from covey.cli.answer import CommandResult, Line, table_of
from covey.cli.commands import PATH, PRIVACY, CommandRow, argument, command
from covey.cli.console import bar_of, console, shown
from covey.cli.runs import set_option

if TYPE_CHECKING:
    from covey_papers.game import Game
    from covey_papers.reproduce.figures import RowInWords


@dataclass(frozen=True, slots=True)
class ExperimentMeasured:
    """One table or figure of a paper.

    Attributes:
        quick: whether it is the scaled-down form.
        shows: what to read off it.
        compared: how many rows, the first ones, stand beside a number of the paper; all where
            it prints none.
    """

    name: str
    title: str
    shows: str
    quick: bool
    compared: int
    rows: Sequence[RowInWords]
    notes: Sequence[str]


@dataclass(frozen=True, slots=True)
class Reproduced(CommandResult):
    """What was measured anew.

    Attributes:
        page: over all records of the folder.
    """

    experiments: Sequence[ExperimentMeasured]
    page: Path

    def lines(self) -> Iterator[Line]:
        """Yield what each experiment shows, and its table."""
        for experiment in self.experiments:
            yield from (experiment.title, experiment.shows, "")
            rows = experiment.rows[: experiment.compared]
            yield from [table_of(rows)] if rows else []
            if others := len(experiment.rows) - len(rows):
                yield f"{others} figures that the paper does not print: {self.page}"
            yield from (*experiment.notes, "")
        yield f"page: {self.page}"


@dataclass(frozen=True, slots=True)
class ExperimentListed:
    """A table or figure that can be measured.

    Attributes:
        minutes_quick: with `--quick`, about.
        minutes: in full, about.
        columns: what --column takes.
    """

    name: str
    title: str
    minutes_quick: float
    minutes: float
    columns: Sequence[str]


@dataclass(frozen=True, slots=True)
class ExperimentsListed:
    """The papers' tables and figures."""

    experiments: Sequence[ExperimentListed]


@command()
@argument("name", default="", help="An experiment, or `all`; --list names them.")
@click.option("--list", "listed", is_flag=True, help="Name every experiment and its time.")
@click.option("--quick", is_flag=True, help="A small form, in at most three minutes.")
@click.option("--column", "columns", multiple=True, help="Only this column; repeatable.")
@click.option(
    "--repeats",
    type=click.IntRange(min=0),
    default=0,
    help="Seeds; 0: as the experiment has. A row with fewer keeps them.",
)
@set_option
@click.option(
    "--out",
    type=PATH,
    default=Path("reproduction"),
    show_default=True,
    help="For records, tables, figures and the page.",
)
@click.option("--runs", type=PATH, help="For the runs; default OUT/runs.")
def reproduce(
    name: str,
    listed: bool,
    quick: bool,
    columns: Sequence[str],
    repeats: int,
    overrides: Sequence[str],
    out: Path,
    runs: Path | None,
) -> Reproduced | ExperimentsListed:
    """Reproduce a table or figure of the papers, and update the overview page.

    A run that is on disk is not played again, whichever table asks for it, nor one of which
    OUT/measured has the figures; one that was stopped is continued.
    """
    from covey_papers.reproduce.figures import printed_first, words, write_page
    from covey_papers.reproduce.record import RunCache, records
    from covey_papers.reproduce.runner import reproduced
    from covey_papers.reproduce.specification import experiment, experiments

    if listed:
        known = experiments().items()
        return ExperimentsListed(
            [
                ExperimentListed(key, entry.title, *entry.minutes, [c.name for c in entry.columns])
                for key, entry in known
            ]
        )
    if not name:
        raise ConfigError("NAME must be an experiment of --list, or all, found none: name one.")
    chosen = experiments() if name == "all" else {name: experiment(name)}
    minutes = {key: entry.minutes[0 if quick else 1] for key, entry in chosen.items()}
    cache = RunCache(runs or out / "runs", shown, out / "measured")
    measured: list[ExperimentMeasured] = []
    with bar_of("all") as bar:
        task = bar.add_task("minutes", total=ceil(sum(minutes.values())), visible=len(chosen) > 1)
        for place, key in enumerate(chosen, start=1):
            if len(chosen) > 1:
                console.print(f"{place} of {len(chosen)}: {key}", style="bold", highlight=False)
            record = reproduced(
                key, out, cache, quick=quick, columns=columns, repeats=repeats, overrides=overrides
            )
            findings = record.findings
            first, others = printed_first(findings.cells)
            rows = [words(cell) for cell in (*first, *others)]
            named = record.name, record.title, record.shows, record.quick
            measured.append(ExperimentMeasured(*named, len(first), rows, findings.notes))
            bar.advance(task, minutes[key])
    return Reproduced(measured, write_page(records(out), out))


@command()
@argument("run", type=PATH, help="The folder of a finished run.")
@click.option(
    "--control",
    is_flag=True,
    help="Play the run once more without some of the participants, and ask about them again.",
)
def game(run: Path, *, control: bool) -> Game:
    """Ask of whole clients whether a run's models show that they took part."""
    from covey import load
    from covey_papers.game import play_game

    with shown(run.name) as observe:
        return play_game(load(run), control=control, observe=observe)


REPRODUCE = CommandRow("covey_papers.cli:reproduce", str(reproduce.help))
GAME = CommandRow("covey_papers.cli:game", str(game.help), PRIVACY)
