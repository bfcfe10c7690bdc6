"""`covey join` and `covey update`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

import covey
from covey import runtime
from covey.cli.app import JsonOption, app, stated
from covey.cli.progress import shown
from covey.cli.stopping import stoppable

__all__ = ["join", "update"]

RunArgument = Annotated[Path, typer.Argument(help="The folder of a run.")]
DataOption = Annotated[
    Path, typer.Option(help="Its records: an .npz file with arrays x and y.")
]


@app.command()
def join(
    run: RunArgument,
    client: Annotated[str, typer.Argument(help="A name that nobody has or had.")],
    data: DataOption,
    threshold: Annotated[
        float | None, typer.Option(help="The risk that it accepts, from 0 to 1.")
    ] = None,
    risk_weight: Annotated[
        float | None,
        typer.Option(help="How much a risk weighs in its choice, from 0 to 1."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Let a client join a run whose models are solved from sums over clients."""
    held = covey.load(run)
    with stoppable(run), shown(run.name) as observe:
        done = held.join(client, data, threshold, risk_weight, observe)
    _tell(held, done, "joined", as_json=as_json)


@app.command()
def update(
    run: RunArgument,
    client: Annotated[str, typer.Argument(help="The client's name.")],
    data: DataOption,
    add: Annotated[
        bool, typer.Option("--add", help="Add to the records that it has.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Replace a client's records, or add to them, and solve the models again."""
    held = covey.load(run)
    with stoppable(run), shown(run.name) as observe:
        done = held.update(client, data, add=add, observe=observe)
    _tell(held, done, "updated", as_json=as_json)


def _tell(
    run: covey.Run, done: runtime.ChangedRecords, what: str, *, as_json: bool
) -> None:
    told = {**asdict(done), "seconds": round(done.seconds, 3)}
    lines = (
        f"{done.client}: {what}, {done.examples} records in cluster {done.cluster}, "
        f"whose sums are now {done.sums_after}",
        f"models solved again in {done.seconds:.1f} s: {done.model_hash}",
        *(f"exported with what was there before: {each}" for each in done.exported),
    )
    stated({"run": str(run.folder), **told}, "\n".join(lines), as_json=as_json)
    run.report()
