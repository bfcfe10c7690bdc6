"""`covey records`: a client's own look at its most exposed records."""

from __future__ import annotations

from dataclasses import asdict
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
    as_json: JsonOption = False,
) -> None:
    """List a client's most exposed records, on the machine where their losses lie.

    Needs train.keep_losses. Nothing is written, and nobody is told.
    """
    found = runs.exposed_records(run, client, share)
    stated(asdict(found), _text(found), as_json=as_json)


def _text(found: ExposedRecords) -> str:
    rows = [
        (
            str(each.place),
            f"{each.loss_spread:.3f}",
            f"{each.first:.3f}",
            f"{each.last:.3f}",
            "yes" if each.withheld else "no",
        )
        for each in found.records
    ]
    heads = ("record", "spread of its loss", "first loss", "last", "left out")
    return (
        f"{tabled(heads, rows)}\n"
        f"{found.client}: {len(rows)} of {found.held:,} records, by losses of "
        f"{found.rounds} rounds; half of its records spread less than "
        f"{found.median_spread:.3f}.\n"
        f"Read from {found.kept_in}."
    )
