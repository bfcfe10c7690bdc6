"""`covey doctor`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from covey import runs
from covey.cli.app import FAILED_CHECK, JsonOption, app, stated

__all__ = ["doctor"]


@app.command()
def doctor(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    mend: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="Recover what can be: delete damaged states and play their rounds again.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Say what is damaged in a run, and what it can be recovered from.

    Exit code 1 if something is damaged that was not repaired.
    """
    found = runs.repair(run) if mend else runs.examine(run)
    answer = {
        "damaged": [each.answer() for each in found.damages],
        "repaired": [each.answer() for each in found.repaired],
    }
    stated(answer, _text(found), as_json=as_json)
    if found.damages:
        raise typer.Exit(FAILED_CHECK)


def _text(found: runs.Examination) -> str:
    repaired = (f"repaired  {each.what}: {each.path}" for each in found.repaired)
    damaged = (
        f"DAMAGED   {each.what}: {each.path}\n          {each.found}\n"
        f"          {each.recovery}"
        for each in found.damages
    )
    lines = [*repaired, *damaged]
    return "\n".join(lines) if lines else "nothing is damaged"
