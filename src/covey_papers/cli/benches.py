"""`covey bench`: is what covey measures true, and what does leaving cost?"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer

from covey import build, runtime
from covey.cli import FAILED_CHECK, JsonOption, app, console, short, stated, tabled
from covey.config import Config
from covey.errors import ConfigError
from covey.events import RiskMeasured
from covey.report import figures
from covey.unlearning import ANSWERS
from covey_papers import bench as benches
from covey_papers.cli.forgetting import forgetting
from covey_papers.cli.performance import memory, scale, speed
from covey_papers.cli.poisoning import poisoning
from covey_papers.cli.record_risk import record_choices, record_risk
from covey_papers.cli.secure_rounds import secure_sums
from covey_papers.cli.subtractions import subtract

__all__ = ["bench", "redteam", "unlearning"]

KEPT = "Folder for the figure and the rows; sets that lie there are not measured again."
OutOption = Annotated[Path | None, typer.Option("--out", help=KEPT)]

bench = typer.Typer(
    help="Hold what covey measures to a truth that only a simulation knows.",
    no_args_is_help=True,
)
app.add_typer(bench, name="bench")
bench.command()(forgetting)
bench.command()(memory)
bench.command()(poisoning)
bench.command("record-choices")(record_choices)
bench.command("record-risk")(record_risk)
bench.command()(scale)
bench.command()(secure_sums)
bench.command()(speed)
bench.command()(subtract)


@bench.callback()
def _named() -> None:
    """Keep `bench` a group, with however few commands."""


@bench.command()
def redteam(
    quick: Annotated[
        bool, typer.Option("--quick", help="Digits only, in under a minute.")
    ] = False,
    only: Annotated[
        str, typer.Option("--only", metavar="NAME", help="One set; default: all.")
    ] = "",
    out: OutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare each source of risk with the true risk, cluster by cluster.

    Exit code 1 if a figure of the summary misses its limit.
    """
    sets = _chosen(benches.QUICK if quick else benches.FULL, only)
    known = [_measured(each, out) for each in sets]
    rows = [row for each in known for row in each.rows]
    judged = benches.checks(known, whole=not (quick or only))
    if out is not None:
        (out / "redteam.png").write_bytes(figures.png(benches.calibration_figure(rows)))
    answer = {
        "rows": [asdict(row) for row in rows],
        "sources": {
            source: asdict(benches.knowledge(rows, source))
            for source in benches.SOURCES
        },
        "cost": asdict(benches.costs_of(known)),
        "controls": [
            {"set": bench.name, "control": name, **asdict(figure)}
            for bench, each in zip(sets, known, strict=True)
            for name, figure in each.controls.items()
        ],
        "checks": [asdict(check) for check in judged],
    }
    stated(answer, _text(rows, answer, judged), as_json=as_json)
    if not all(check.ok for check in judged):
        raise typer.Exit(FAILED_CHECK)


@bench.command()
def unlearning(
    out: Annotated[Path, typer.Option("--out", help=KEPT)],
    quick: Annotated[
        bool, typer.Option("--quick", help="40 clients with 60 images, 12 rounds.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    as_json: JsonOption = False,
) -> None:
    """Compare what leaving costs: training again, FedEraser, isolated clusters, sets."""
    leaving = benches.QUICK_LEAVING if quick else benches.PAPER
    least, most = benches.predicted(leaving, _seconds_per_round(leaving, seed, out))
    console.print(
        f"{leaving.name}: about {least / 60:.0f} to {most / 60:.0f} minutes on this "
        f"machine, less what lies in {out} already",
        highlight=False,
    )
    found = benches.outcomes(leaving, seed, out, _observe_outcome)
    answer = {
        "experiment": leaving.name,
        "seed": seed,
        "settings": [
            {
                **asdict(each),
                "mean_seconds": fmean(each.seconds) if each.seconds else None,
            }
            for each in found
        ],
    }
    stated(answer, tabled(LEAVING_HEADS, map(_outcome_cells, found)), as_json=as_json)


LEAVING_HEADS = (
    "setting",
    "accuracy",
    "requests",
    "denied",
    "rolled back",
    "retrained",
    "calibrated",
    "seconds per request",
    "server MB",
    "run shared with",
)


def _outcome_cells(each: benches.Outcome) -> list[str]:
    answers = [each.answers.get(name, 0) for name in ANSWERS]
    return [
        each.name,
        short(each.accuracy),
        str(len(each.seconds)),
        *map(str, answers),
        short(fmean(each.seconds) if each.seconds else None),
        f"{each.server_bytes / 1e6:.1f}",
        each.shared_with,
    ]


def _observe_outcome(each: benches.Outcome) -> None:
    cells = zip(LEAVING_HEADS, _outcome_cells(each), strict=True)
    console.print(", ".join(f"{head} {cell}" for head, cell in cells), highlight=False)


def _seconds_per_round(leaving: benches.Leaving, seed: int, out: Path) -> float:
    """Play two rounds of the first setting, to know what a round takes."""
    settings = {**leaving.base, "seed": seed, "rounds": 2}
    assembled = build.build_run(Config.of({**settings, "unlearning": {}}))
    out.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=out) as folder:
        began = time.monotonic()
        runtime.run_rounds(
            assembled,
            runtime.RunFolder.create(Path(folder) / "probe", assembled.config),
        )
        return (time.monotonic() - began) / 2


def _chosen(sets: Sequence[benches.BenchSet], name: str) -> list[benches.BenchSet]:
    chosen = [each for each in sets if not name or each.name == name]
    if not chosen:
        names = ", ".join(repr(each.name) for each in sets)
        raise ConfigError(f"--only takes one of {names}, found {name!r}. Choose one.")
    return chosen


def _measured(each: benches.BenchSet, out: Path | None) -> benches.Measured:
    """Measure one set, unless it lies in the folder."""
    if out is not None and (kept := benches.found(out, each)) is not None:
        return kept
    fresh = benches.measured(each, time.process_time, _observe)
    if out is not None:
        benches.put(out, each, fresh)
    return fresh


def _observe(row: benches.Row) -> None:
    told = ", ".join(
        f"{source} {_figure(row.told[source])}" for source in benches.SOURCES
    )
    console.print(
        f"{row.set_name}, cluster {row.cluster} before round {row.round_index}: truth "
        f"{row.truth:.3f}±{row.truth_error:.3f}, {told}",
        highlight=False,
        soft_wrap=True,
    )


def _text(
    rows: Sequence[benches.Row], answer: dict[str, Any], judged: Sequence[benches.Check]
) -> str:
    """Return every row, the summary and the checks as tables."""
    tables = (
        _row_table(rows),
        _summary(answer),
        _controls(answer),
        _check_table(judged),
    )
    return "\n\n".join(tables)


def _controls(answer: dict[str, Any]) -> str:
    return tabled(
        ("set", "control", "risk"),
        [
            (
                each["set"],
                each["control"],
                f"{each['risk']:.3f}±{each['standard_error']:.3f}",
            )
            for each in answer["controls"]
        ],
    )


def _row_table(rows: Sequence[benches.Row]) -> str:
    """Return a line per model; `*`: further off than max(0.03, 2 SE)."""
    columns = (
        "set",
        "cluster",
        "size",
        "round",
        "truth",
        *benches.SOURCES,
        "withheld, and why",
    )
    return tabled(
        columns,
        [
            (
                row.set_name,
                str(row.cluster),
                str(row.size),
                str(row.round_index),
                f"{row.truth:.3f}±{row.truth_error:.3f}",
                *(
                    f"{_figure(row.told[name])}{_mark(row, name)}"
                    for name in benches.SOURCES
                ),
                "; ".join(
                    row.told[s].reason
                    for s in benches.SOURCES
                    if not row.told[s].calibrated
                ),
            )
            for row in rows
        ],
    )


def _figure(told: RiskMeasured) -> str:
    if told.risk is None:
        return "-"
    figure = f"{told.risk:.3f}±{told.standard_error:.3f}"
    return figure if told.calibrated else f"({figure})"


def _mark(row: benches.Row, source: str) -> str:
    error = benches.error_of(row, source)
    if error is None or not row.told[source].calibrated:
        return ""
    return "" if benches.is_right(*error) else " *"


def _summary(answer: dict[str, Any]) -> str:
    sources = answer["sources"]
    names = list(next(iter(sources.values())))
    lines = [
        (name.replace("_", " "), *(short(sources[s][name]) for s in benches.SOURCES))
        for name in names
    ]
    costs = [
        (name.replace("_", " "), short(value), "")
        for name, value in answer["cost"].items()
    ]
    return tabled(("", *benches.SOURCES), [*lines, *costs])


def _check_table(judged: Sequence[benches.Check]) -> str:
    return tabled(
        ("check", "value", "limit", ""),
        [
            (
                check.name.replace("_", " "),
                short(check.value),
                check.limit,
                "ok" if check.ok else "MISSED",
            )
            for check in judged
        ],
    )
