"""`covey bench record-risk`: do losses that cost nothing find the exposed records?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from covey import build
from covey.cli import JsonOption, console, short, stated, tabled
from covey.config import load_config
from covey_papers import bench as benches

__all__ = ["record_choices", "record_risk"]

SettingsArgument = Annotated[Path, typer.Argument(help="Settings, as a run has them.")]
OverridesOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="Override section.key=value; repeatable."),
]


def record_risk(
    settings: SettingsArgument,
    out: Annotated[
        Path, typer.Option("--out", help="References that lie there are not played.")
    ],
    references: Annotated[
        int, typer.Option("--references", min=6, help="Federations to play.")
    ] = 64,
    overrides: OverridesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Hold the losses that clients keep to LiRA: precision at the most exposed 1%."""
    told = ["method.name=fedavg", "train.keep_losses=true", *(overrides or ())]
    run = build.build_run(load_config(settings, told))
    benches.play_references(run, references, out, _observe)
    known = benches.read_references(run, out)
    rows = benches.precisions(known)
    trained, asked = known.seconds
    answer = {
        "settings": settings.stem,
        "references": known.inside.shape[1],
        "members": int(known.inside[:, 0].sum()),
        "rows": [asdict(each) for each in rows],
        "seconds_to_train": trained,
        "seconds_to_ask_for_losses": asked,
    }
    stated(answer, _text(rows, trained, asked), as_json=as_json)


def record_choices(
    settings: SettingsArgument,
    out: Annotated[
        Path, typer.Option("--out", help="Runs that lie there are not played again.")
    ],
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Seeds 0 to N-1.")] = 3,
    overrides: OverridesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Count who ends above its threshold, by whose figure clients choose."""
    found: list[benches.ChoiceOutcome] = []
    for each in benches.choice_outcomes(settings, seeds, out, overrides or ()):
        found.append(each)
        said = f"{each.choice}, seed {each.seed}: {each.violations} violations"
        console.print(said, highlight=False)
    rows = benches.choice_means(found)
    answer = {"runs": list(map(asdict, found)), "means": list(map(asdict, rows))}
    heads = ("choice", "seeds", "violations", "exposed", "accuracy", "clusters in use")
    cells = [
        (
            each.choice,
            str(each.seeds),
            f"{each.violations:.1f} ({short(each.violations_error)})",
            f"{each.exposed:.1f}",
            f"{each.accuracy:.3f}",
            f"{each.clusters_used:.1f}",
        )
        for each in rows
    ]
    stated(answer, tabled(heads, cells), as_json=as_json)


def _observe(index: int, seconds: float) -> None:
    console.print(f"reference {index}: {seconds:.0f} seconds", highlight=False)


def _text(rows: Sequence[benches.RecordPrecision], trained: float, asked: float) -> str:
    cells = [
        (
            each.score,
            f"{each.false_positives:g}",
            f"{each.precision:.3f} ({each.standard_error:.3f})",
        )
        for each in rows
    ]
    heads = ("most exposed 1% by", "vulnerable at FPR", "precision (SE)")
    return (
        f"{tabled(heads, cells)}\n\nover {rows[0].models} models under attack. Asking for "
        f"all losses once a round would take {asked / trained:.1%} of the training; those "
        f"of the first row are there anyway."
    )
