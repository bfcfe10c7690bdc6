"""The same federation under several settings and seeds: which runs, and their table."""

import csv
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from itertools import product
from pathlib import Path
from typing import Any

from covey.atomic_io import replace_whole
from covey.config import Config, flat, why_unheeded
from covey.errors import ConfigError
from covey.history import History
from covey.report import comparison, frame_of, means
from covey.runs.pages import page_over, reported
from covey.runtime import RunFolder

__all__ = ["Axis", "Sweep", "check_variant", "concluded_sweep", "variants_of"]

Axis = tuple[str, Sequence[Any]]
"""A setting as `section.key`, and the values that it takes."""


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
    """

    folder: Path
    rows: tuple[dict[str, Any], ...]
    compared: tuple[Mapping[str, Any], ...]
    means: tuple[Mapping[str, Any], ...]
    table: Path
    page: Path
    histories: Mapping[str, History]

    def __repr__(self) -> str:
        return f"Sweep({str(self.folder)!r}, {len(self.histories)} runs)"

    def frame(self) -> Any:  # noqa: ANN401 - pandas has no types
        """Return a pandas DataFrame of `sweep.csv`.

        Raises:
            ConfigError: pandas is not installed.
        """
        return frame_of([*self.rows])


def variants_of(
    changed: Callable[[Sequence[tuple[str, Any]]], Config],
    axes: Sequence[Axis],
    seeds: Sequence[int],
) -> dict[str, Config]:
    """Return the settings by name; combinations that mean the same are played once.

    Args:
        changed: returns the settings with these pairs of `section.key` and value.
        axes: what is varied.
        seeds: with which every combination is played.

    Raises:
        ConfigError: settings do not fit, or what is varied changes nothing.
    """
    found: dict[str, Config] = {}
    meanings: list[Mapping[str, Any]] = []
    without_effect: list[Mapping[str, str]] = []
    values = ([(key, value) for value in values] for key, values in axes)
    for pairs, seed in product(product(*values), seeds):
        settings = changed([*pairs, ("seed", seed)])
        reasons = why_unheeded(settings)
        without_effect.append(reasons)
        every = flat(settings.model_dump(mode="json"))
        meaning = {key: value for key, value in every.items() if key not in reasons}
        if meaning not in meanings:
            meanings.append(meaning)
            slug = "-".join(re.sub(r"[:/\\]", "_", str(value)) for _, value in pairs)
            found[f"{slug}-seed{seed}"] = settings
    for key, _ in axes:
        _refuse_without_effect(key, without_effect)
    return found


def _refuse_without_effect(key: str, found: Sequence[Mapping[str, str]]) -> None:
    """Refuse to compare runs by a setting that does nothing in any of them."""
    first = "its seeds are those of --seeds" if key == "seed" else found[0].get(key, "")
    if key == "seed" or all(key in each for each in found):
        raise ConfigError(
            f"--over {key} changes no run of this sweep: {first}. Leave it out, or "
            f"change what makes it do nothing."
        )


def check_variant(folder: RunFolder, settings: Config) -> None:
    """Refuse a folder that holds a run with other settings than these.

    Raises:
        ConfigError: it does.
    """
    if folder.config_path.is_file() and folder.config() != settings:
        raise ConfigError(
            f"{folder.path} holds a run with other settings. Give the sweep another --out."
        )


def concluded_sweep(
    root: Path, variants: Mapping[str, Config], keys: Sequence[str]
) -> Sweep:
    """Write a finished sweep's page and its table, and return what is in them."""
    folders = [root / name for name in variants]
    runs = [reported(folder) for folder in folders]
    compared, table = comparison(runs), root / "sweep.csv"
    rows = [
        {**_swept(variants[row["name"]], keys), **row}
        for row in compared
        if row["name"] in variants
    ]
    replace_whole(table, _csv(rows).encode())
    return Sweep(
        folder=root,
        rows=tuple(rows),
        compared=tuple(compared),
        means=tuple(means(runs)),
        table=table,
        page=page_over(folders, root / "report.html"),
        histories={run.name: run.history for run in runs},
    )


def _swept(config: Config, keys: Sequence[str]) -> dict[str, Any]:
    """Return what was varied in a run."""
    settings = config.model_dump(mode="json")
    return {key: _value_of(settings, key) for key in keys}


def _csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return one line per run, with every name as a column."""
    text = StringIO()
    names = dict.fromkeys(name for row in rows for name in row)
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _value_of(settings: Mapping[str, Any], key: str) -> object:
    """Return a setting by `section.key`; a table is told as JSON."""
    found: Any = settings
    for part in key.split("."):
        found = found[part]
    return json.dumps(found, sort_keys=True) if isinstance(found, dict) else found
