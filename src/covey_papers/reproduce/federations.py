"""Experiments over federations: rows of methods by columns of data, every cell repeated."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from covey.api import load
from covey.config import Config
from covey.errors import DataError
from covey.params import norm, subtract
from covey.report import utility_lines
from covey_papers.reproduce.measures import MEASURES, Seen
from covey_papers.reproduce.papers import Table, printed_table
from covey_papers.reproduce.reasons import with_settings
from covey_papers.reproduce.record import Cell, Found, Line, Printed, averaged
from covey_papers.reproduce.run_cache import Shelf, sources
from covey_papers.reproduce.specification import Column, Experiment, Row

__all__ = ["federations"]

Runs = Mapping[tuple[str, str], Sequence[Seen]]
"""Row and column to its repeats."""


def federations(experiment: Experiment, shelf: Shelf, *, quick: bool) -> Found:
    """Play every cell with seeds 0, 1, ..., and measure what the experiment names.

    A column whose data are not there is left out, and says which files to put where.
    """
    runs, missing = _played(experiment, shelf, quick=quick)
    paths = [seen.path for each in runs.values() for seen in each]
    return Found(
        cells=tuple(_cells(experiment, runs, missing, quick=quick)),
        lines=tuple(_lines(runs)) if experiment.figure == "lines" else (),
        notes=tuple(missing.values()),
        **sources(paths),
    )


def _played(
    experiment: Experiment, shelf: Shelf, *, quick: bool
) -> tuple[Runs, Mapping[str, str]]:
    """Return the runs, and per column without data the reason."""
    runs: dict[tuple[str, str], list[Seen]] = {}
    missing: dict[str, str] = {}
    wanted = [
        (seed, column, row)
        for seed in range(experiment.repeats)  # an early stop leaves whole tables
        for column in experiment.columns
        for row in experiment.rows
        if seed < (row.repeats or experiment.repeats)
    ]
    for seed, column, row in wanted:
        if column.name in missing:
            continue
        settings = experiment.settings_of(column, row, quick=quick)
        title = f"{column.name}, {row.name}, seed {seed}"
        try:
            path = shelf.run(Config.of({**settings, "seed": seed}), title)
        except DataError as error:
            missing[column.name] = f"not played: {error}"
        else:
            runs.setdefault((row.name, column.name), []).append(Seen.of(path))
    return runs, missing


def _cells(
    experiment: Experiment, runs: Runs, missing: Mapping[str, str], *, quick: bool
) -> Iterator[Cell]:
    table = (
        printed_table(experiment.paper, experiment.table) if experiment.table else {}
    )
    for column in experiment.columns:
        for row in experiment.rows:
            seen = runs.get((row.name, column.name), ())
            config = Config.of(experiment.settings_of(column, row, quick=quick))
            for measure in experiment.measures:
                printed = _printed(table, row, column, measure)
                text = with_settings(experiment.why.get(measure, ""), config)
                yield Cell(
                    row=row.name,
                    column=column.name,
                    measure=MEASURES[measure].title,
                    values=tuple(MEASURES[measure].of(each) for each in seen),
                    printed=printed,
                    why=_why(measure, seen, text) if seen and printed else "",
                    reason=missing.get(column.name, ""),
                )
            reason = missing.get(column.name)
            yield from (
                replace(cell, reason=reason) if reason else cell
                for cell in _compared(experiment, runs, row, column)
            )


def _why(measure: str, seen: Sequence[Seen], text: str) -> str:
    """Join what the experiment says of its method and what its runs show."""
    return " ".join(filter(None, [text, MEASURES[measure].why(seen)]))


def _compared(
    experiment: Experiment, runs: Runs, row: Row, column: Column
) -> Iterator[Cell]:
    """Compare a row with `against`, seed by seed: both saw the same data."""
    theirs = runs.get((experiment.against, column.name), ())
    own = runs.get((row.name, column.name), ())
    if row.name == experiment.against:
        return
    for name in experiment.factors:
        of = MEASURES[name]
        values = tuple(
            _factor(of.of(a), of.of(b)) for a, b in zip(theirs, own, strict=False)
        )
        title = f"{of.title}: {experiment.against}'s / own"
        ends = [of.of(each) for each in (*theirs, *own)]
        reason = "" if None in ends else UNBOUNDED
        yield Cell(row.name, column.name, title, values, reason=reason)
    for name in experiment.differences:
        of = MEASURES[name]
        values = tuple(
            _minus(of.of(b), of.of(a)) for a, b in zip(theirs, own, strict=False)
        )
        title = f"{of.title} minus {experiment.against}'s"
        yield Cell(row.name, column.name, title, values)
    if experiment.distances:
        values = tuple(_distance(b, a) for a, b in zip(theirs, own, strict=False))
        title = f"distance to {experiment.against}'s model, relative to its length"
        yield Cell(row.name, column.name, title, values)


UNBOUNDED = "unbounded: in some run it is 0, and nothing is divided by 0"


def _distance(own: Seen, theirs: Seen) -> float:
    """Return ||theta - theta_0|| / ||theta_0|| of the only models of two runs."""
    model, reference = (load(seen.path).params(0) for seen in (own, theirs))
    return norm(subtract(model, reference)) / norm(reference)


def _factor(theirs: float | None, own: float | None) -> float | None:
    return None if theirs is None or not own else theirs / own


def _minus(own: float | None, theirs: float | None) -> float | None:
    return None if theirs is None or own is None else own - theirs


def _printed(table: Table, row: Row, column: Column, measure: str) -> Printed | None:
    name = row.printed.get(measure)
    return table.get((name, column.printed or column.name)) if name else None


def _lines(runs: Runs) -> Iterator[Line]:
    """Average each group's accuracy per round over the repeats."""
    for (row, column), repeats in runs.items():
        every = [utility_lines(seen.history) for seen in repeats]
        for group in list(every[0])[1:]:
            points = averaged([lines[group] for lines in every])
            yield Line(column, f"{row}, {group}", points)
