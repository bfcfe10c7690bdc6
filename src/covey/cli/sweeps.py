"""`covey sweep`: the same federation under several settings and seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from covey import report, runtime
from covey.cli.app import JsonOption, app, stated
from covey.cli.divergence import diverged_in, fail_if_diverged
from covey.cli.progress import console
from covey.cli.runs import SetOption, configured, played
from covey.cli.stopping import stoppable
from covey.cli.tables import short, tabled
from covey.cli.unused import as_answer, tell, unused_everywhere
from covey.components.built_ins import REFERENCES
from covey.config import Config
from covey.errors import ConfigError

__all__ = ["sweep"]


@app.command()
def sweep(
    config: Annotated[Path, typer.Argument(help="Settings in TOML.")],
    over: Annotated[
        list[str], typer.Option("--over", metavar="KEY=V1,V2,...", help="Repeatable.")
    ],
    seeds: Annotated[int, typer.Option(min=1, help="Seeds 0 to N-1.")] = 1,
    overrides: SetOption = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Default: sweeps/NAME.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Play every combination with every seed, and compare them pair by pair.

    Runs that are on disk already are not played again; unfinished ones are resumed.
    Where a model diverges the other runs are played all the same; exit code 1.
    """
    root = out or Path("sweeps") / config.stem
    axes = [_axis(each) for each in over]

    def changed(pairs: Sequence[tuple[str, Any]]) -> Config:
        return configured(config, [*(overrides or []), *(f"{k}={v}" for k, v in pairs)])

    from covey.runs import concluded_sweep, variants_of

    variants = variants_of(changed, axes, range(seeds))
    nowhere = unused_everywhere(variants.values())
    tell(nowhere)
    for index, (name, settings) in enumerate(variants.items(), start=1):
        _ensure(root / name, settings, f"{index}/{len(variants)} {name}")
    done = concluded_sweep(root, variants, [key for key, _ in axes])
    answer = {
        "runs": [str(root / name) for name in variants],
        "rows": list(done.compared),
        "means": list(done.means),
        "diverged": diverged_in(done.histories),
        "unused_settings": [as_answer(each) for each in nowhere],
        "report": str(done.page),
        "table": str(done.table),
    }
    told_files = f"report: {done.page}\ntable: {done.table}"
    stated(answer, f"{_text(answer)}{told_files}", as_json=as_json)
    fail_if_diverged(done.histories)


def _axis(text: str) -> tuple[str, list[str]]:
    key, equals, values = text.partition("=")
    if not equals or not values:
        raise ConfigError(
            f"--over takes section.key=v1,v2,..., found {text!r}. "
            f"Write for example --over method.name=fedavg,ifca."
        )
    return key.strip(), [value.strip() for value in values.split(",")]


def _ensure(path: Path, settings: Config, title: str) -> None:
    """Play a run unless it is there; a folder of another run is refused."""
    from covey.runs import check_variant

    check_variant(runtime.RunFolder(path), settings)
    if not runtime.is_finished(path):
        run, folder = runtime.open_or_create(path, settings)
        console.print(title, highlight=False)
        with stoppable(path, f"the same `covey sweep`, which resumes {path}"):
            played(run, folder)


HIDDEN = ("reason", "violations_unknown", "diverged")
METRICS = ("accuracy", "minority_accuracy", "violations")


def _text(answer: Mapping[str, Any]) -> str:
    """Return the runs and their means as two tables."""
    rows = [
        {key: row[key] for key in row if key not in HIDDEN} for row in answer["rows"]
    ]
    settings = [
        {"setting": each["setting"], "runs": each["runs"]}
        | {key: report.spread(each[key]) for key in METRICS}
        | {
            f"{key} - {method}": report.spread(each[f"minus_{method}"][key])
            for method in REFERENCES
            if each[f"minus_{method}"]
            for key in METRICS
        }
        for each in answer["means"]
    ]
    return f"{_table(rows)}\n\n{_table(settings)}\n"


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    return tabled(
        columns, ([short(row.get(key, "-")) for key in columns] for row in rows)
    )
