"""`covey reproduce`: the papers' tables and figures, beside what covey measures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from covey.base.errors import ConfigError
from covey.cli.answer import JsonOption, tabled
from covey.cli.app import app, console, stated
from covey.cli.runs import SetOption, shown

if TYPE_CHECKING:
    from covey_papers.reproduce.record import Record


OUT = Path("reproduction")


@app.command()
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
    ] = OUT,
    runs: Annotated[
        Path | None, typer.Option("--runs", help="For the runs; default OUT/runs.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure a table or figure of the papers anew, and write the page over them all.

    A run that is on disk is not played again, whichever table asks for it; one that was
    stopped is carried on.
    """
    from covey_papers.reproduce.figures import words, write_page
    from covey_papers.reproduce.record import Shelf
    from covey_papers.reproduce.runner import Asked, records, reproduced
    from covey_papers.reproduce.specification import experiments

    if listed:
        _list(as_json=as_json)
        return
    if not name:
        raise ConfigError(
            "`covey reproduce` takes an experiment, `all`, or --list, which names them."
        )
    chosen = list(experiments()) if name == "all" else [name]
    shelf = Shelf(runs or out / "runs", shown)
    found: list[Record] = []
    for each in chosen:
        if len(chosen) > 1:
            console.print(each, style="bold", highlight=False)
        asked = Asked(each, quick, tuple(column or ()), repeats, tuple(overrides or ()))
        found.append(reproduced(asked, out, shelf))
    page = write_page(records(out), out)
    answer = {
        "experiments": [
            {
                "name": record.name,
                "quick": record.quick,
                "rows": [
                    dict(zip(_keys(), words(cell), strict=True)) for cell in record.found.cells
                ],
                "notes": list(record.found.notes),
            }
            for record in found
        ],
        "page": str(page),
    }
    text = "\n\n".join(_text(record) for record in found)
    stated(answer, f"{text}\n\npage: {page}", as_json=as_json)


def _keys() -> tuple[str, ...]:
    from covey_papers.reproduce.figures import COLUMNS

    return tuple(name.replace("95% ", "") for name in COLUMNS)


def _list(*, as_json: bool) -> None:
    from covey_papers.reproduce.specification import experiments

    known = experiments()
    answer = {
        "experiments": [
            {
                "name": name,
                "title": each.title,
                "minutes_quick": each.minutes[0],
                "minutes": each.minutes[1],
            }
            for name, each in known.items()
        ]
    }
    rows = [
        (name, each.title, f"{each.minutes[0]:g} min", f"{each.minutes[1]:g} min")
        for name, each in known.items()
    ]
    stated(answer, tabled(("name", "what", "--quick", "in full"), rows), as_json=as_json)


def _text(record: Record) -> str:
    from covey_papers.reproduce.figures import COLUMNS, words

    lines = [f"{record.title}", record.shows, ""]
    if record.found.cells:
        lines.append(tabled(COLUMNS, (words(cell) for cell in record.found.cells)))
    return "\n".join([*lines, *record.found.notes])
