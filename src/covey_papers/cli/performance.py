"""`covey bench speed`, `scale` and `memory`: ratios within one run, and their limits."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from covey.cli import FAILED_CHECK, JsonOption, console, stated, tabled
from covey.errors import ConfigError
from covey.portable import num_cores
from covey_papers import bench as benches
from covey_papers import reproduce

__all__ = ["memory", "scale", "speed"]

HEADS = ("figure", "covey", "compared with", "ratio", "limit", "met?")

QuickOption = Annotated[
    bool,
    typer.Option("--quick", help="Small versions: they show that all of it works."),
]
OnlyOption = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="NAME", help="This figure; repeatable."),
]
AgainstOption = Annotated[
    Path | None,
    typer.Option("--against", help="What the same bench wrote earlier, with --json."),
]
ToleranceOption = Annotated[
    float,
    typer.Option(min=0, max=0.9, help="By which share a ratio may be worse than then."),
]
RepeatsOption = Annotated[
    int, typer.Option("--repeats", min=1, help="Pairs that are measured in turn.")
]
WorkersOption = Annotated[
    int, typer.Option("--workers", min=0, help="Threads of both sides; 0: the cores.")
]


def speed(
    quick: QuickOption = False,
    only: OnlyOption = None,
    against: AgainstOption = None,
    tolerance: ToleranceOption = 0.1,
    repeats: RepeatsOption = 5,
    workers: WorkersOption = 0,
    processor_time: Annotated[
        bool,
        typer.Option(
            "--processor-time",
            help="Of loops in this process, compare seconds of the processor.",
        ),
    ] = False,
    peers: Annotated[
        Path, typer.Option("--peers", help="The environment of `make bench-peers`.")
    ] = Path(".venv-peers"),
    as_json: JsonOption = False,
) -> None:
    """Compare rounds with the same steps in a bare loop, and with other simulators.

    Exit code 1 if a ratio is worse than it was in --against; a missed limit is printed.
    """
    effort = benches.Effort(
        quick, repeats, workers or num_cores(), processor_time, peers
    )
    _told(benches.SPEED, effort, only, (against, tolerance), as_json=as_json)


def scale(
    quick: QuickOption = False,
    only: OnlyOption = None,
    against: AgainstOption = None,
    tolerance: ToleranceOption = 0.1,
    repeats: RepeatsOption = 3,
    workers: WorkersOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Compare late rounds with early ones, and large cohorts with small ones.

    Exit code 1 if a ratio is worse than it was in --against; a missed limit is printed.
    """
    effort = benches.Effort(quick, repeats, workers or num_cores())
    _told(benches.SCALE, effort, only, (against, tolerance), as_json=as_json)


def memory(
    quick: QuickOption = False,
    only: OnlyOption = None,
    against: AgainstOption = None,
    tolerance: ToleranceOption = 0.1,
    repeats: RepeatsOption = 3,
    workers: WorkersOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Compare peaks of memory with data + 3 x (workers + clusters) x model.

    Exit code 1 if a ratio is worse than it was in --against; a missed limit is printed.
    """
    effort = benches.Effort(quick, repeats, workers or num_cores())
    _told(benches.MEMORY, effort, only, (against, tolerance), as_json=as_json)


def _told(
    figures: Mapping[str, benches.Measure],
    effort: benches.Effort,
    only: Sequence[str] | None,
    earlier: tuple[Path | None, float],
    *,
    as_json: bool,
) -> None:
    """Measure, print, and compare with an earlier run."""
    path, tolerance = earlier
    before = [] if path is None else _read(path, quick=effort.quick)
    chosen = _chosen(figures, only or ())
    began = _load()
    rows = [_measured(name, figures[name], effort) for name in chosen]
    changes = benches.changes(before, rows, tolerance)
    answer = {
        "taken": _taken(effort, began),
        "rows": [asdict(row) for row in rows],
        "changes": [asdict(each) for each in changes],
    }
    tables = [_row_table(rows), *([_change_table(changes)] if path else [])]
    stated(answer, "\n\n".join([*tables, _footer(answer["taken"])]), as_json=as_json)
    if any(each.worse for each in changes):
        raise typer.Exit(FAILED_CHECK)


def _chosen(
    figures: Mapping[str, benches.Measure], only: Sequence[str]
) -> Sequence[str]:
    if unknown := [name for name in only if name not in figures]:
        raise ConfigError(
            f"--only takes one of {', '.join(figures)}, found {unknown[0]!r}. Choose one."
        )
    return only or list(figures)


def _measured(
    name: str, measure: benches.Measure, effort: benches.Effort
) -> benches.Comparison:
    began = time.monotonic()
    row = measure(name, effort)
    console.print(
        f"{name}: {_ratio(row)}, in {time.monotonic() - began:.0f} s", highlight=False
    )
    return row


def _read(path: Path, *, quick: bool) -> list[benches.Comparison]:
    """Return the rows of an earlier run, of the same sizes."""
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        rows, before = told["rows"], bool(told["taken"]["quick"])
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(
            f"--against takes what the same bench wrote with --json, found {path}, which "
            f"is something else. Write it anew."
        ) from error
    if before != quick:
        raise ConfigError(
            f"--against takes a run of the same sizes, found one "
            f"{'with' if before else 'without'} --quick. Measure both alike."
        )
    return [benches.Comparison.of(each) for each in rows]


def _taken(effort: benches.Effort, began: float | None) -> dict[str, Any]:
    """Return where and how the figures were taken."""
    return {
        "commit": reproduce.commit(),
        "machine": reproduce.machine(),
        "load_before": began,
        "load_after": _load(),
        "quick": effort.quick,
        "repeats": effort.repeats,
        "workers": effort.workers,
        "processor_time": effort.processor_time,
    }


def _load() -> float | None:
    """Return how many processes wanted a core in the last minute, where that is told."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None


def _ratio(row: benches.Comparison) -> str:
    if row.ratio is None or row.spread is None:
        return row.note
    least, most = row.spread
    return f"{row.ratio:.2f} ({least:.2f} to {most:.2f})"


def _row_table(rows: Sequence[benches.Comparison]) -> str:
    words = {None: "", True: "yes", False: "MISSED"}
    return tabled(
        HEADS,
        [(r.figure, r.covey, r.peer, _ratio(r), r.limit, words[r.met]) for r in rows],
    )


def _change_table(changes: Sequence[benches.Change]) -> str:
    return tabled(
        ("figure", "ratio then", "now", "times as good", ""),
        [
            (
                each.figure,
                f"{each.before:.2f}",
                f"{each.now:.2f}",
                f"{each.factor:.2f}",
                "WORSE" if each.worse else "",
            )
            for each in changes
        ],
    )


def _footer(taken: Mapping[str, Any]) -> str:
    load = " to ".join(
        "unknown" if each is None else f"{each:.1f}"
        for each in (taken["load_before"], taken["load_after"])
    )
    clock = "processor time" if taken["processor_time"] else "the clock"
    return (
        f"{taken['machine']}; commit {taken['commit']}; load {load}\n"
        f"{taken['workers']} workers, medians of {taken['repeats']} pairs by {clock}; in "
        f"brackets the least and the greatest ratio"
    )
