"""`covey bench poisoning`: which aggregation holds against clients that collude?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from covey.cli import JsonOption, console, stated, tabled
from covey.errors import ConfigError
from covey_papers import bench as benches

__all__ = ["poisoning"]


def poisoning(
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Two attacks by a fifth, 10 rounds, one seed."),
    ] = False,
    on_minority: Annotated[
        bool,
        typer.Option(
            "--on-minority",
            help="The attacks on a minority, with and without method.max_newcomers: "
            "the geometric median, three seeds.",
        ),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="Folder for the rows; those in it are not repeated."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Compare aggregations under attack: accuracy of the majority and of the minority."""
    if quick and on_minority:
        raise ConfigError(
            "One bench is played at a time, found --quick and --on-minority. Give one."
        )
    bench = benches.QUICK_POISONING if quick else benches.POISONING
    bench = benches.ON_MINORITY if on_minority else bench
    rows = benches.suffered_by_all(bench, out, _observe)
    answer = {
        "rounds": bench.rounds,
        "merges": {name: asdict(each) for name, each in benches.MERGES.items()},
        "rows": [asdict(row) for row in rows],
    }
    stated(answer, _text(rows), as_json=as_json)


def _observe(row: benches.Suffered) -> None:
    cell = row.cell
    console.print(
        f"{cell.method}, {cell.attack} by {cell.share:.0%}, {cell.merge}, seed "
        f"{cell.seed}: majority {row.majority:.3f}, minority {row.minority:.3f}",
        highlight=False,
    )


def _text(rows: Iterable[benches.Suffered]) -> str:
    """Return a line per attack and share, each aggregation's means over the seeds."""
    rows = tuple(rows)
    lines: dict[tuple[str, str, float], dict[str, str]] = {}
    for row, spread in zip(benches.means(rows), benches.deviations(rows), strict=True):
        cell = row.cell
        here = lines.setdefault((cell.method, cell.attack, cell.share), {})
        figures = (row.accuracy, row.majority, row.minority, spread.minority)
        printed = [f"{x:.3f}".removeprefix("0") for x in figures]
        here[cell.merge] = "{} {} {} ±{}".format(*printed)
    merges = dict.fromkeys(row.cell.merge for row in rows)
    table = tabled(
        ("method", "attack", "share", *merges),
        [
            (method, attack, f"{share:.0%}", *here.values())
            for (method, attack, share), here in lines.items()
        ],
    )
    return (
        "accuracy of honest clients: all, majority, minority ±standard deviation of the "
        f"minority's over the seeds\n\n{table}"
    )
