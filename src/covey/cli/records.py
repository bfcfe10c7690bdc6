"""`covey records`: a client's own look at its most exposed records."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from covey import runs
from covey.cli.app import JsonOption, app, stated
from covey.cli.tables import tabled

if TYPE_CHECKING:
    from covey.runs import ExposedRecords

__all__ = ["records"]


@app.command()
def records(
    run: Annotated[
        Path, typer.Argument(help="The folder of a run, or of a client's own node.")
    ],
    client: Annotated[str, typer.Argument(help="Of a run: the client's name.")] = "",
    share: Annotated[
        float, typer.Option(help="Which part of its records: at least one.")
    ] = 0.02,
    page: Annotated[
        Path | None,
        typer.Option("--page", help="Write them as an HTML page for the client, too."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List a client's most exposed records, on the machine where their losses lie.

    Needs train.keep_losses. Nothing else is written, and nobody is told.
    """
    found = runs.exposed_records(run, client, share)
    more = {} if page is None else {"page": str(found.write_html(page))}
    text = "\n".join([_text(found), *more.values()])
    stated({**found.to_dict(), **more}, text, as_json=as_json)


def _text(found: ExposedRecords) -> str:
    rows = [
        (
            str(each.rank),
            str(each.place),
            *([str(each.row)] if found.rows_known else []),
            f"{each.score:.3f}",
            f"{each.first:.3f}",
            f"{each.last:.3f}",
        )
        for each in found.records
    ]
    row = ("row",) if found.rows_known else ()
    heads = ("rank", "record", *row, "score", "first loss", "last")
    return (
        f"{tabled(heads, rows)}\n"
        f"{found.client}: {len(rows)} of {found.held:,} records, by losses of "
        f"{found.rounds} rounds; half of its records score less than "
        f"{found.median_score:.3f}. The score is {found.score_told}.\n"
        f"Read from {found.kept_in}."
    )
