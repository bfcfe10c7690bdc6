"""`covey track`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import covey
from covey.cli.app import JsonOption, app, stated
from covey.config import put

if TYPE_CHECKING:
    from covey.cli.outputs.runs import Tracked

__all__ = ["track"]


@app.command()
def track(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    to: Annotated[
        str, typer.Option("--to", help="As `tracking` in the settings names it.")
    ],
    options: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Its options; repeatable."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Tell TensorBoard, MLflow, W&B or a tracker of your own of a run's rounds.

    Rounds that it holds already are not told again.
    """
    given: dict[str, Any] = {}
    for pair in options or []:
        put(given, pair)
    held = covey.load(run)
    told = held.track(to, given)
    answer: Tracked = {"run": str(run), "tracker": to, "rounds": told}
    text = f"{to} was told of {told} of {len(held.history.rounds)} rounds"
    stated(answer, text, as_json=as_json)
