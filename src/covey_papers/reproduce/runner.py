"""Playing an experiment, and keeping what it found."""

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from torch import Tensor

from covey.base.errors import ConfigError
from covey.base.files import replace_whole
from covey.report.figures import samples_figure, svg
from covey.settings.load import Config, read_settings
from covey.settings.problems import together
from covey.settings.run import build_run
from covey_papers.reproduce.federations import federations, leaving
from covey_papers.reproduce.figures import as_csv, drawn
from covey_papers.reproduce.record import (
    Findings,
    Record,
    Shelf,
    commit,
    machine,
    read_record,
    write_record,
)
from covey_papers.reproduce.specification import (
    Column,
    Experiment,
    Row,
    experiment,
    paper_title,
    with_settings,
)
from covey_papers.reproduce.theory import arithmetic, contraction, margin

SAMPLES = 8
NO_ROW = Row(name="")
OTHERWISE = "Other settings than the experiment's: the command says which."


@dataclass(frozen=True, slots=True)
class Reproduction:
    """One `covey reproduce`.

    Attributes:
        columns: those that are played; empty: all.
        repeats: 0: as many as the experiment says.
        overrides: `section.key=value`, on top of what the experiment sets.
    """

    name: str
    quick: bool = False
    columns: tuple[str, ...] = ()
    repeats: int = 0
    overrides: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        """The command line that does this again."""
        words = ["covey", "reproduce", self.name, *(["--quick"] if self.quick else [])]
        for column in self.columns:
            words += ["--column", column]
        if self.repeats:
            words += ["--repeats", str(self.repeats)]
        for override in self.overrides:
            words += ["--set", override]
        return shlex.join(words)


def reproduced(reproduction: Reproduction, out: Path, shelf: Shelf) -> Record:
    """Play what is not on the shelf yet, and write record, table and figure into `out`.

    Raises:
        ConfigError: there is no such experiment or column.
    """
    chosen = _chosen(reproduction)
    findings = _findings(chosen, shelf, quick=reproduction.quick)
    record = Record(
        name=reproduction.name,
        title=chosen.title,
        paper=paper_title(chosen.paper),
        shows=_shows(chosen, quick=reproduction.quick),
        quick=reproduction.quick,
        figure=chosen.figure,
        axes=chosen.axes,
        seeds=tuple(range(chosen.repeats)),
        command=reproduction.command,
        machine=machine(),
        date=datetime.now(UTC).isoformat(timespec="minutes"),
        sizes={
            column.name: _size(chosen, column, quick=reproduction.quick)
            for column in chosen.columns
        },
        found=findings,
    )
    out.mkdir(parents=True, exist_ok=True)
    write_record(out / f"{record.stem}.json", record)
    if findings.cells:
        replace_whole(out / f"{record.stem}.csv", as_csv(record).encode())
    figure = drawn(record) if record.figure and findings.known else None
    if chosen.kind == "samples":
        figure = samples_figure(_samples(chosen, quick=reproduction.quick))
    if figure is not None:
        (out / "figures").mkdir(exist_ok=True)
        replace_whole(out / "figures" / f"{record.stem}.svg", svg(figure))
    return record


def records(out: Path) -> list[Record]:
    """Return everything that has been reproduced into a folder, by name."""
    return [read_record(path) for path in sorted(out.glob("*.json"))]


def _chosen(reproduction: Reproduction) -> Experiment:
    whole = experiment(reproduction.name)
    if not whole.columns and (
        reproduction.columns or reproduction.repeats or reproduction.overrides
    ):
        raise ConfigError(
            f"{reproduction.name} has a plan of its own, which --column, --repeats and --set do "
            f"not reach. Leave them out."
        )
    chosen = whole.in_brief() if reproduction.quick else whole
    if reproduction.repeats:
        chosen = chosen.model_copy(update={"repeats": reproduction.repeats})
    known = [column.name for column in chosen.columns]
    for name in reproduction.columns:
        if name not in known:
            raise ConfigError(
                f"--column takes one of {', '.join(map(repr, known))}, found {name!r}."
            )
    wanted = [c for c in chosen.columns if c.name in (reproduction.columns or known)]
    on_top, problems = read_settings(None, reproduction.overrides)
    if problems:
        raise ConfigError(together(problems))
    changed: dict[str, Any] = {"columns": tuple(wanted), "on_top": on_top}
    if on_top:
        changed["why"] = {
            name: f"{chosen.why.get(name, '')} {OTHERWISE}".strip() for name in chosen.measures
        }
    return chosen.model_copy(update=changed)


def _findings(chosen: Experiment, shelf: Shelf, *, quick: bool) -> Findings:
    kinds: Mapping[str, Callable[[], Findings]] = {
        "federations": lambda: federations(chosen, shelf, quick=quick),
        "leaving": lambda: leaving(chosen, shelf, quick=quick),
        "arithmetic": lambda: arithmetic(chosen),
        "samples": lambda: Findings(commits=(commit(),)),
        "contraction": lambda: contraction(shelf, quick=quick),
        "margin": lambda: margin(shelf, quick=quick),
    }
    return kinds[chosen.kind]()


def _shows(chosen: Experiment, *, quick: bool) -> str:
    """Say what to read off it, with the settings of its first column."""
    text = " ".join(chosen.shows.split())
    if not chosen.columns:
        return text
    settings = chosen.settings_of(chosen.columns[0], NO_ROW, quick=quick)
    return with_settings(text, Config.of(settings))


def _samples(chosen: Experiment, *, quick: bool) -> dict[str, Tensor]:
    """Return a few unseen images of each group: never a client's own."""
    samples: dict[str, Tensor] = {}
    for column in chosen.columns:
        settings = chosen.settings_of(column, NO_ROW, quick=quick)
        population = build_run(Config.of(settings)).population
        for group, test in zip(population.groups, population.test, strict=True):
            samples[f"{column.name}, {group.name}"] = test.inputs[:SAMPLES]
    return samples


def _size(chosen: Experiment, column: Column, *, quick: bool) -> str:
    """Say how large a column's runs are."""
    config = Config.of(chosen.settings_of(column, NO_ROW, quick=quick))
    population = config.population
    images = [group.examples_per_client for group in population.groups]
    each = sorted(set(images or [population.examples_per_client]))
    return (
        f"{config.rounds} rounds, {population.clients} clients with "
        f"{' or '.join(map(str, each))} examples, {config.model.name}"
    )
