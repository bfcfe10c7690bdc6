"""Several settings and seeds, each a run, compared pair by pair."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import nan
from pathlib import Path
from typing import Any

from pydantic_core import to_jsonable_python

from covey.api.pages import page_over, reported
from covey.base.components import Component
from covey.base.errors import ConfigError
from covey.base.files import replace_whole
from covey.base.history import History
from covey.base.names import do_you_mean
from covey.report.comparison import comparison, frame_of, means, spread_over
from covey.report.queries import csv_of
from covey.report.summary import spread
from covey.runs.folder import RunFolder
from covey.settings.load import Config, flat, idle_settings, take_strange

Axis = tuple[str, Sequence[Any]]
"""A setting as `section.key`, and the values that it takes."""


PLOTTED = (
    *("accuracy", "squared_error", "violations", "violations_lower", "true_risk_minority"),
    *("true_risk_majority", "adjusted_rand_index", "epsilon"),
)
"""Figures that every sweep has; others are `accuracy_GROUP`, and metrics of the settings."""


@dataclass(frozen=True, slots=True, eq=False)
class Sweep:
    """The runs of a sweep, all of them at their end.

    Attributes:
        folder: where they are, each in a folder of its name.
        rows: one per run, with every swept setting, its name, and its figures.
        compared: the same without the settings, and FedAvg runs beside some of them.
        means: one per setting, over its seeds.
        table: sweep.csv, with the rows.
        page: report.html, on which they are compared pair by pair.
        histories: by name.
        unchanged: the swept settings whose values all give the same figures.
    """

    folder: Path
    rows: tuple[dict[str, Any], ...]
    compared: tuple[Mapping[str, Any], ...]
    means: tuple[Mapping[str, Any], ...]
    table: Path
    page: Path
    histories: Mapping[str, History]
    unchanged: tuple[str, ...]

    def __repr__(self) -> str:
        return f"Sweep({str(self.folder)!r}, {len(self.histories)} runs)"

    def frame(self) -> Any:  # noqa: ANN401 - pandas has no types
        """Return a pandas DataFrame of `sweep.csv`.

        Raises:
            ConfigError: pandas is not installed.
        """
        return frame_of([*self.rows])


def variants_of(
    changed: Callable[[Sequence[tuple[str, Any]]], dict[str, Any]],
    axes: Sequence[Axis],
    seeds: Sequence[int],
) -> dict[str, Config]:
    """Return the settings by name; combinations that mean the same are played once.

    Args:
        changed: returns the settings with these pairs of `section.key` and value, nested
            and unchecked. Of a pair that the components there do not have nothing comes.
        axes: what is varied.
        seeds: with which every combination is played.

    Raises:
        ConfigError: settings do not fit, or what is varied changes nothing.
    """
    variants: dict[str, Config] = {}
    meanings: list[Mapping[str, Any]] = []
    without_effect: list[Mapping[str, str]] = []
    values = ([(key, value) for value in values] for key, values in axes)
    for pairs, seed in product(product(*values), seeds):
        nested = changed([*pairs, ("seed", seed)])
        strange = take_strange(nested, [key for key, _ in pairs])
        settings = Config.of(nested)
        reasons = {setting.key: setting.reason for setting in idle_settings(settings)} | strange
        without_effect.append(reasons)
        every = flat(settings.model_dump(mode="json"))
        meaning = {key: value for key, value in every.items() if key not in reasons}
        if meaning not in meanings:
            meanings.append(meaning)
            slug = "-".join(re.sub(r"[:/\\]", "_", str(value)) for _, value in pairs)
            variants[f"{slug}-seed{seed}"] = settings
    for key, _ in axes:
        if key == "seed" or all(key in reasons for reasons in without_effect):
            seeds_of = "its seeds are those of --seeds"
            first = seeds_of if key == "seed" else without_effect[0].get(key, "")
            raise ConfigError(
                f"--over {key} must change runs, found that {first}: leave it out, or change that."
            )
    return variants


def check_variant(folder: RunFolder, settings: Config) -> None:
    """Refuse a folder that holds a run with other settings than these.

    Raises:
        ConfigError: it does.
    """
    if folder.config_path.is_file() and folder.config().toml() != settings.toml():
        raise ConfigError(
            f"{folder.path} must have these settings, found others: give the sweep another --out."
        )


def concluded_sweep(root: Path, variants: Mapping[str, Config], keys: Sequence[str]) -> Sweep:
    """Write a finished sweep's page and its table, and return what is in them."""
    folders = [RunFolder.existing(root / name) for name in variants]
    runs = [reported(folder) for folder in folders]
    compared, table = comparison(runs), root / "sweep.csv"
    rows = [
        {**{key: _value_of(variants[row["name"]], key) for key in keys}, **row}
        for row in compared
        if row["name"] in variants
    ]
    replace_whole(table, csv_of(rows).encode())
    return Sweep(
        folder=root,
        rows=tuple(rows),
        compared=tuple(compared),
        means=tuple(means(runs)),
        table=table,
        page=page_over([folder.path for folder in folders], root / "report.html"),
        histories={run.name: run.history for run in runs},
        unchanged=tuple(key for key in keys if _changes_nothing(key, keys, rows)),
    )


def _changes_nothing(key: str, keys: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> bool:
    """Say whether runs that differ in nothing but this setting have the same figures."""
    about = {*keys, "name", "method", "selection"} - {"seed"}
    alike: dict[str, list[str]] = {}
    for row in rows:
        figures = repr([value for name, value in row.items() if name not in about])
        rest = repr([row["seed"], *(row[other] for other in keys if other != key)])
        alike.setdefault(rest, []).append(figures)
    several = any(len(results) > 1 for results in alike.values())
    return several and all(len({*results}) == 1 for results in alike.values())


def check_plot(plot: str, keys: Sequence[str], variants: Mapping[str, Config]) -> tuple[str, str]:
    """Return the figure and the swept setting of `FIGURE:KEY`.

    Raises:
        ConfigError: it is none, or the runs will have no such figure.
    """
    known = *PLOTTED, *dict.fromkeys(m.label for v in variants.values() for m in v.metrics)
    figure, _, key = plot.rpartition(":")
    pairs = [f"{name}:{setting}" for name in known for setting in keys]
    if key not in keys or (figure not in known and not figure.startswith("accuracy_")):
        raise ConfigError(
            f"--plot must be FIGURE:KEY, of {', '.join(known)} or accuracy_GROUP, and --over "
            f"{', '.join(keys)}, found {plot!r}: correct it.{do_you_mean(plot, pairs)}"
        )
    return figure, key


def write_plot(swept: Sweep, figure: str, key: str, keys: Sequence[str]) -> tuple[Path, ...]:
    """Write a figure's means over seeds, by a swept setting: PDF, PNG, CSV, LaTeX."""
    from covey.report.comparison_figures import swept_figure
    from covey.report.figures import saved

    columns = [*(other for other in keys if other != key), key]
    values_at: dict[tuple[Any, ...], list[float]] = {}
    for row in swept.rows:
        value = row.get(figure, row.get(f"metric_{figure}"))
        at = tuple(row[column] for column in columns)
        values_at.setdefault(at, []).append(nan if value is None else value)
    table = [
        dict(zip(columns, at, strict=True)) | spread_over(values)
        for at, values in values_at.items()
    ]
    picture = swept_figure(figure, columns, table)
    shown = [{c: row[c] for c in (*columns, "runs")} | {figure: spread(row)} for row in table]
    files = {
        "pdf": saved(picture, "pdf", CreationDate=None),
        "png": saved(picture, "png"),
        "csv": csv_of(table).encode(),
        "tex": _latex(shown),
    }
    stem = swept.folder / re.sub(r"[^\w.-]+", "_", f"{figure}-{key}")
    paths = {stem.with_name(f"{stem.name}.{kind}"): content for kind, content in files.items()}
    for path, content in paths.items():
        replace_whole(path, content)
    return tuple(paths)


def _latex(rows: Sequence[Mapping[str, object]]) -> bytes:
    """Return rows as a `tabular` that needs no package."""
    marks = {mark: f"\\{mark}" for mark in "&%$#_{}"} | {"±": r"$\pm$"}
    marks |= {"\\": r"\textbackslash{}", "^": r"\^{}", "~": r"\~{}"}
    head, *body = (
        " & ".join("".join(marks.get(c, c) for c in str(cell)) for cell in row) + r" \\"
        for row in ([*rows[0]], *(row.values() for row in rows))
    )
    begin = rf"\begin{{tabular}}{{{'l' * len(rows[0])}}}"
    return "\n".join([begin, head, r"\hline", *body, r"\end{tabular}", ""]).encode()


def _value_of(config: Config, key: str) -> object:
    """Return a setting by `section.key`; None: it has none. A table is returned as JSON."""
    value: Any = config
    for part in key.split("."):
        value = getattr(value, part, None)
    if isinstance(value, Component):
        own = value.own_settings()
        return json.dumps({"name": value.name, **own}, sort_keys=True) if own else value.name
    plain = to_jsonable_python(value)
    return json.dumps(plain, sort_keys=True) if isinstance(plain, dict) else plain
