"""`covey reproduce`: the papers' tables and figures, beside what covey measures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from covey.cli import JsonOption, SetOption, app, console, shown, stated, tabled
from covey.errors import ConfigError
from covey_papers import reproduce as papers

__all__ = ["reproduce"]

OUT = Path("reproduction")


@app.command()
def reproduce(
    name: Annotated[
        str, typer.Argument(help="An experiment, or `all`; --list names them.")
    ] = "",
    listed: Annotated[
        bool, typer.Option("--list", help="Name every experiment and its time.")
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="A small form, in at most three minutes.")
    ] = False,
    column: Annotated[
        list[str] | None,
        typer.Option("--column", help="Only this column; repeatable."),
    ] = None,
    repeats: Annotated[
        int,
        typer.Option(
            min=0, help="Seeds; 0: as the experiment has. A row with fewer keeps them."
        ),
    ] = 0,
    overrides: SetOption = None,
    out: Annotated[
        Path,
        typer.Option("--out", help="For records, tables, figures and the page."),
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
    if listed:
        _list(as_json=as_json)
        return
    if not name:
        raise ConfigError(
            "`covey reproduce` takes an experiment, `all`, or --list, which names them."
        )
    chosen = list(papers.experiments()) if name == "all" else [name]
    shelf = papers.Shelf(runs or out / "runs", shown)
    found: list[papers.Record] = []
    for each in chosen:
        if len(chosen) > 1:
            console.print(each, style="bold", highlight=False)
        asked = papers.Asked(
            each, quick, tuple(column or ()), repeats, tuple(overrides or ())
        )
        found.append(papers.reproduced(asked, out, shelf))
    page = papers.write_page(papers.records(out), out)
    answer = {
        "experiments": [
            {
                "name": record.name,
                "quick": record.quick,
                "rows": [
                    dict(zip(_keys(), papers.words(cell), strict=True))
                    for cell in record.found.cells
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
    return tuple(name.replace("95% ", "") for name in papers.COLUMNS)


def _list(*, as_json: bool) -> None:
    known = papers.experiments()
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
    stated(
        answer, tabled(("name", "what", "--quick", "in full"), rows), as_json=as_json
    )


def _text(record: papers.Record) -> str:
    lines = [f"{record.title}", record.shows, ""]
    if record.found.cells:
        lines.append(
            tabled(papers.COLUMNS, (papers.words(cell) for cell in record.found.cells))
        )
    return "\n".join([*lines, *record.found.notes])
