"""`covey bench forgetting`: what do answers take out of a model, and what do they tell?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from covey.cli import FAILED_CHECK, JsonOption, console, short, stated, tabled
from covey.errors import ConfigError
from covey.report import figures
from covey_papers import bench as benches

if TYPE_CHECKING:
    from covey.membership import Estimate

__all__ = ["forgetting"]

HEADS = (
    "federation",
    "answer",
    "epsilon: median",
    "mean",
    "above 1, 2, 3",
    "mean, fresh",
    "confidence moved; fresh",
    "accuracy",
    "given",
    "from round",
    "never-met bits",
)
LEAK_HEADS = (
    "federation",
    "answer",
    "membership: before and after",
    "after alone",
    "label: before and after",
    "after alone",
)


def forgetting(
    models: Annotated[
        int,
        typer.Option("--models", min=4, max=1_000, help="Seeds on either side."),
    ] = 64,
    only: Annotated[
        str,
        typer.Option("--only", metavar="NAME", help="One federation; default: all."),
    ] = "",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="Folder for seeds and a figure; seeds in it are not repeated."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Tell models after each answer from models that never met the client, if one can.

    Exit code 1 if an exact answer is above the control's level, a denial is not where
    nothing was removed, or that is no different from the control.
    """
    found = [_played(each, models, out) for each in _chosen(only)]
    judged = benches.forgetting_checks(found)
    if out is not None:
        (out / "forgetting.png").write_bytes(
            figures.png(benches.forgetting_figure(found))
        )
    answer = {
        "models": models,
        "federations": [asdict(each) for each in found],
        "checks": [asdict(each) for each in judged],
    }
    stated(answer, _text(found, judged), as_json=as_json)
    if not all(each.ok for each in judged):
        raise typer.Exit(FAILED_CHECK)


def _chosen(name: str) -> list[benches.ForgettingSet]:
    chosen = [each for each in benches.FORGETTING if not name or each.name == name]
    if not chosen:
        names = ", ".join(repr(each.name) for each in benches.FORGETTING)
        raise ConfigError(f"--only takes one of {names}, found {name!r}. Choose one.")
    return chosen


def _played(
    each: benches.ForgettingSet, models: int, out: Path | None
) -> benches.Forgotten:
    def observe(seeds: int) -> None:
        if seeds % 8 == 0 or seeds == models:
            console.print(f"{each.name}: {seeds} of {models} seeds", highlight=False)

    return benches.forgotten(each, models, out, observe)


def _text(found: Sequence[benches.Forgotten], judged: Sequence[benches.Check]) -> str:
    rows = [_cells(each, row) for each in found for row in each.rows]
    ranges = [
        f"{each.name}: halves of models that never met the client, mean epsilon "
        f"{each.control.mean:.2f}, 99% of them {each.control.low:.2f} to "
        f"{each.control.high:.2f}"
        for each in found
    ]
    ranges += [
        f"{each.name}: sums before and after the answer {row.answer!r} have the leaver's "
        f"labels between them in {row.sums_tell} of {each.models} seeds"
        for each in found
        for row in each.rows
        if row.sums_tell is not None
    ]
    leaks = [
        (each.name, name, *_leak_cells(leak))
        for each in found
        for name, leak in each.leaks.items()
    ]
    checks = [
        (each.name, short(each.value), each.limit, "ok" if each.ok else "MISSED")
        for each in judged
    ]
    return "\n\n".join(
        (
            tabled(HEADS, rows),
            "\n".join(ranges),
            tabled(LEAK_HEADS, leaks),
            tabled(("check", "value", "limit", ""), checks),
        )
    )


def _cells(each: benches.Forgotten, row: benches.ForgottenRow) -> tuple[str, ...]:
    given = ", ".join(f"{name} {count}" for name, count in row.given.items())
    return (
        each.name,
        row.answer,
        f"{row.epsilon.median:.2f}",
        f"{row.epsilon.mean:.2f}",
        ", ".join(f"{share:.0%}" for share in row.epsilon.above),
        f"{row.fresh.mean:.2f}",
        f"{row.moved[0]:+.2f}; {row.moved[1]:+.2f}",
        f"{row.accuracy:.3f}",
        given,
        "" if row.from_round is None else f"{row.from_round:.1f}",
        f"{row.same_bits} of {each.models}",
    )


def _leak_cells(leak: benches.Leaked) -> tuple[str, ...]:
    return (
        _interval(leak.both.membership),
        _interval(leak.after.membership),
        _interval(leak.both.label),
        _interval(leak.after.label),
    )


def _interval(each: Estimate) -> str:
    return f"{each.value:.2f} ({each.low:.2f} to {each.high:.2f})"
