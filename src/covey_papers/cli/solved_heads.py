"""`covey bench solved`: how accurate and how exposed are heads that are solved?"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from covey.cli import JsonOption, console, stated, tabled
from covey_papers import bench as benches

__all__ = ["solved"]


def solved(
    settings: Annotated[
        list[Path], typer.Argument(help="Settings of populations with groups.")
    ],
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Seeds 0 to N-1.")] = 1,
    pooling: Annotated[
        str, typer.Option("--pooling", help="Values of pooling, by commas.")
    ] = "0,0.3,1",
    regularisation: Annotated[
        str, typer.Option("--regularisation", help="Values of it, by commas.")
    ] = "0.1,1",
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", help="Override section.key=value; repeatable."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Solve the head of every true group, and hold the exact risk to the truth."""
    dials = _numbers(pooling), _numbers(regularisation)
    rows: list[benches.HeadFigures] = []
    for path in settings:
        for seed in range(seeds):
            rows += benches.head_figures(path, seed, dials, overrides or ())
            console.print(f"{path.stem}, seed {seed}: measured", highlight=False)
    near = benches.agreement(rows)
    answer = {"rows": [asdict(row) for row in rows], "agreement": near}
    stated(answer, _text(rows, near), as_json=as_json)


def _numbers(told: str) -> tuple[float, ...]:
    try:
        return tuple(float(each) for each in told.split(","))
    except ValueError:
        raise typer.BadParameter(f"numbers by commas, found {told!r}") from None


def _text(rows: list[benches.HeadFigures], near: float) -> str:
    table = tabled(
        (
            "settings",
            "group",
            "pooling",
            "lambda",
            "accuracy",
            "true risk",
            "likelihood ratio",
        ),
        [
            (
                each.settings,
                each.group,
                f"{each.pooling:g}",
                f"{each.regularisation:g}",
                f"{each.accuracy:.3f} ({each.deviation:.3f})",
                f"{each.true_risk:.3f}",
                f"{each.likelihood_ratio:.3f}",
            )
            for each in benches.head_means(rows)
        ],
    )
    return (
        f"{table}\n\nThe left-out risk is within max(.03, 2 SE) of the true one in "
        f"{near:.1%} of {len(rows)} heads."
    )
