"""`covey sweep`: the same federation under several settings and seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
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
from covey.config import Config, flat, why_unheeded
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
    variants = _variants(config, over, seeds, overrides or [])
    nowhere = unused_everywhere(variants.values())
    tell(nowhere)
    folders = [
        _ensured(root / name, settings, f"{index}/{len(variants)} {name}")
        for index, (name, settings) in enumerate(variants.items(), start=1)
    ]
    from covey.runs import page_over, reported

    runs = [reported(folder) for folder in folders]
    told = {run.name: run.history for run in runs}
    page = page_over(folders, root / "report.html")
    answer = {
        "runs": [str(folder) for folder in folders],
        "rows": report.comparison(runs),
        "means": report.means(runs),
        "diverged": diverged_in(told),
        "unused_settings": [as_answer(each) for each in nowhere],
        "report": str(page),
    }
    stated(answer, f"{_text(answer)}report: {page}", as_json=as_json)
    fail_if_diverged(told)


def _variants(
    config: Path, over: Sequence[str], seeds: int, overrides: Sequence[str]
) -> dict[str, Config]:
    """Return the settings by name; combinations that mean the same are played once."""
    axes = [_axis(each) for each in over]
    found: dict[str, Config] = {}
    meanings: list[Mapping[str, Any]] = []
    without_effect: list[Mapping[str, str]] = []
    for pairs, seed in product(product(*axes), range(seeds)):
        changes = [f"{key}={value}" for key, value in pairs]
        settings = configured(config, [*overrides, *changes, f"seed={seed}"])
        reasons = why_unheeded(settings)
        without_effect.append(reasons)
        every = flat(settings.model_dump(mode="json"))
        meaning = {key: value for key, value in every.items() if key not in reasons}
        if meaning not in meanings:
            meanings.append(meaning)
            slug = "-".join(str(value).replace(":", "_") for _, value in pairs)
            found[f"{slug}-seed{seed}"] = settings
    for axis in axes:
        _refuse_without_effect(axis[0][0], without_effect)
    return found


def _refuse_without_effect(key: str, found: Sequence[Mapping[str, str]]) -> None:
    """Refuse to compare runs by a setting that does nothing in any of them."""
    first = "its seeds are those of --seeds" if key == "seed" else found[0].get(key, "")
    if key == "seed" or all(key in each for each in found):
        raise ConfigError(
            f"--over {key} changes no run of this sweep: {first}. Leave it out, or "
            f"change what makes it do nothing."
        )


def _axis(text: str) -> list[tuple[str, str]]:
    key, equals, values = text.partition("=")
    if not equals or not values:
        raise ConfigError(
            f"--over takes section.key=v1,v2,..., found {text!r}. "
            f"Write for example --over method.name=fedavg,ifca."
        )
    return [(key.strip(), value.strip()) for value in values.split(",")]


def _ensured(path: Path, settings: Config, title: str) -> Path:
    """Play a run unless it is there; a folder of another run is refused."""
    known = (path / "config.toml").is_file()
    if known and runtime.RunFolder.existing(path).config() != settings:
        raise ConfigError(
            f"{path} holds a run with other settings. Give the sweep another --out."
        )
    if not runtime.is_finished(path):
        run, folder = runtime.open_or_create(path, settings)
        console.print(title, highlight=False)
        with stoppable(path, f"the same `covey sweep`, which resumes {path}"):
            played(run, folder)
    return path


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
