"""Playing an experiment, and keeping what it found."""

import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from torch import Tensor

from covey import Config, ConfigError
from covey.base.files import replace_whole
from covey.report.figures import samples_figure, svg
from covey.settings.load import read_settings
from covey.settings.problems import together
from covey.settings.run import build_run
from covey_papers.reproduce.federations import federations, leaving
from covey_papers.reproduce.figures import as_csv, drawn
from covey_papers.reproduce.record import (
    ExperimentRecord,
    Findings,
    RunCache,
    commit,
    machine,
    note,
)
from covey_papers.reproduce.specification import (
    Experiment,
    TableRow,
    experiment,
    paper_title,
    with_settings,
)
from covey_papers.reproduce.theory import arithmetic, contraction, margin
from covey_papers.reproduce.violation_bound import violations

SAMPLES = 8
NO_ROW = TableRow(name="")
OTHERWISE = "Other settings than the experiment's: the command says which."


def reproduced(
    name: str,
    out: Path,
    cache: RunCache,
    *,
    quick: bool = False,
    columns: Sequence[str] = (),
    repeats: int = 0,
    overrides: Sequence[str] = (),
) -> ExperimentRecord:
    """Play what is not in the cache yet, and write record, table and figure into `out`.

    Args:
        name: of the experiment.
        out: the folder.
        cache: of the runs that were played.
        quick: take the small form.
        columns: those that are played; empty: all.
        repeats: 0: as many as the experiment says.
        overrides: `section.key=value`, on top of what the experiment sets.

    Raises:
        ConfigError: there is no such experiment or column.
    """
    whole = experiment(name)
    if not whole.columns and (columns or repeats or overrides):
        raise ConfigError(
            f"{name} must be without --column, --repeats and --set, found one: leave it out."
        )
    chosen = whole.in_brief() if quick else whole
    known = [column.name for column in chosen.columns]
    if unknown := [column for column in columns if column not in known]:
        raise ConfigError(
            f"--column must be {' or '.join(map(repr, known))}, found {unknown[0]!r}: choose one."
        )
    on_top, problems = read_settings(None, overrides)
    if problems:
        raise ConfigError(together(problems))
    why = {key: f"{chosen.why.get(key, '')} {OTHERWISE}".strip() for key in chosen.measures}
    chosen = chosen.model_copy(
        update={
            "columns": tuple(c for c in chosen.columns if c.name in (columns or known)),
            "repeats": repeats or chosen.repeats,
            "on_top": on_top,
            "why": why if on_top else chosen.why,
        }
    )
    words = ["covey", "reproduce", name, *(["--quick"] if quick else [])]
    words += [word for column in columns for word in ("--column", column)]
    words += ["--repeats", str(repeats)] if repeats else []
    words += [word for override in overrides for word in ("--set", override)]
    configs = {c.name: Config.of(chosen.settings_of(c, NO_ROW)) for c in chosen.columns}
    shows = " ".join(chosen.shows.split())
    record = ExperimentRecord(
        name=name,
        title=chosen.title,
        paper=paper_title(chosen.paper),
        shows=with_settings(shows, next(iter(configs.values()))) if configs else shows,
        quick=quick,
        figure=chosen.figure,
        axes=chosen.axes,
        seeds=tuple(range(chosen.repeats)),
        command=shlex.join(words),
        machine=machine(),
        date=datetime.now(UTC).isoformat(timespec="minutes"),
        sizes={column: _size(config) for column, config in configs.items()},
        findings=_findings(chosen, cache),
    )
    out.mkdir(parents=True, exist_ok=True)
    note(out / f"{record.stem}.json", record)
    if record.findings.cells:
        replace_whole(out / f"{record.stem}.csv", as_csv(record).encode())
    figure = drawn(record) if record.figure and record.findings.known else None
    if chosen.kind == "samples":
        figure = samples_figure(_samples(configs))
    if figure is not None:
        (out / "figures").mkdir(exist_ok=True)
        replace_whole(out / "figures" / f"{record.stem}.svg", svg(figure))
    return record


def _findings(chosen: Experiment, cache: RunCache) -> Findings:
    match chosen.kind:
        case "federations":
            return federations(chosen, cache)
        case "violations":
            return violations(chosen, cache)
        case "leaving":
            return leaving(chosen, cache)
        case "arithmetic":
            return arithmetic(chosen)
        case "samples":
            return Findings(commits=(commit(),))
        case "contraction":
            return contraction(chosen, cache)
        case "margin":
            return margin(chosen, cache)


def _samples(configs: dict[str, Config]) -> dict[str, Tensor]:
    """Return a few unseen images of each group: never a client's own."""
    samples: dict[str, Tensor] = {}
    for column, config in configs.items():
        population = build_run(config).population
        for group, test in zip(population.groups, population.test, strict=True):
            samples[f"{column}, {group.name}"] = test.inputs[:SAMPLES]
    return samples


def _size(config: Config) -> str:
    """Say how large a column's runs are."""
    population = config.population
    images = [group.examples_per_client for group in population.groups]
    sizes = sorted(set(images or [population.examples_per_client]))
    return (
        f"{config.rounds} rounds, {population.clients} clients with "
        f"{' or '.join(map(str, sizes))} examples, {config.model.name}"
    )
