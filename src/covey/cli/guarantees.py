"""`covey guarantee`."""

from dataclasses import asdict
from typing import Annotated

import typer

from covey.cli.app import JsonOption, app, stated
from covey.cli.tables import tabled
from covey.errors import ConfigError
from covey.unlearning import settings_below

__all__ = ["guarantee"]


@app.command()
def guarantee(
    deniability: Annotated[
        bool,
        typer.Option("--deniability", help="Which k and x keep forced replays rare?"),
    ] = False,
    clients: Annotated[int, typer.Option(min=2, help="In every round.")] = 50,
    rounds: Annotated[int, typer.Option(min=1)] = 50,
    requests: Annotated[int, typer.Option(min=0, help="Who asks to leave.")] = 10,
    target: Annotated[
        float, typer.Option(min=0, max=1, help="The probability to stay below.")
    ] = 0.05,
    as_json: JsonOption = False,
) -> None:
    """Say what settings promise before a run is played.

    Exact where each round's sets are drawn at random (merge.partition = public-random);
    for sets of similar models it is a guide.
    """
    if not deniability:
        raise ConfigError(
            "covey guarantee computes --deniability in this version; privacy budgets are "
            "not built yet. Add --deniability."
        )
    if requests > clients:
        raise ConfigError(
            f"--requests is how many of the --clients ask to leave, so at most {clients}, "
            f"found {requests}. Lower it."
        )
    rows = settings_below(target, clients, rounds, requests)
    told = {
        "clients": clients,
        "rounds": rounds,
        "requests": requests,
        "target": target,
        "holds_if": [
            "every client takes part in every round, in one cluster",
            "sets are drawn at random, independently in every round",
            "who asks to leave is random",
        ],
        "settings": [asdict(row) for row in rows],
    }
    heads = ("k", "x", "sets per round", "probability of a replay", "below the target")
    cells = [
        (
            str(row.k),
            str(row.x),
            str(row.sets),
            f"{row.rollback_probability:.4f}",
            "yes" if row.fine else "no",
        )
        for row in rows
    ]
    premises = "\n".join(f"- {each}" for each in told["holds_if"])
    stated(told, f"{tabled(heads, cells)}\n\nif\n{premises}", as_json=as_json)
