"""Experiments over leaving: what a request costs, setting by setting."""

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from covey.api import load
from covey.config import Config
from covey.errors import DataError
from covey.report import OVERALL, utility_lines
from covey_papers.reproduce.answered_runs import Leaving, Outcome, outcomes
from covey_papers.reproduce.papers import Table, printed_table
from covey_papers.reproduce.provenance import commit
from covey_papers.reproduce.reasons import with_settings
from covey_papers.reproduce.record import Cell, Found, Line, averaged
from covey_papers.reproduce.run_cache import Shelf, digest, note, sources
from covey_papers.reproduce.specification import Column, Experiment, Row

__all__ = ["leaving"]

NAMES = {"retrain": "fedAvg", "federaser": "fedEraser"}
"""What the second paper calls the baselines."""

EVERY_ANSWER = Row(name="every answer")

ByRow = Mapping[str, Sequence[Outcome]]


def leaving(experiment: Experiment, shelf: Shelf, *, quick: bool) -> Found:
    """Play every column's requests under every baseline, every k and every x.

    The paper's table prints the first of the measures. A row of anonymity sets has one
    value per x, as the paper's mean and deviation are over x; those x that answer every
    request alike share a run, and count once. Every setting of a column gets the same
    requests.
    """
    table = (
        printed_table(experiment.paper, experiment.table) if experiment.table else {}
    )
    cells: list[Cell] = []
    lines: list[Line] = []
    missing: list[str] = []
    folders: list[Path] = []
    for column in experiment.columns:
        settings = experiment.settings_of(column, EVERY_ANSWER, quick=quick)
        plan = Leaving(
            column.name, settings, experiment.k, experiment.x, experiment.baselines
        )
        folder = shelf.folder / f"leaving-{digest(Config.of(settings))}"
        places = [folder / f"seed-{seed}" for seed in range(experiment.repeats)]
        found, reason = (), ""
        try:
            found = tuple(
                _played(plan, seed, place, shelf) for seed, place in enumerate(places)
            )
        except DataError as error:
            reason = f"not played: {error}"
            missing.append(reason)
        rows = _by_row([each for repeat in found for each in repeat])
        whys = {
            measure: with_settings(text, Config.of(settings))
            for measure, text in experiment.why.items()
        }
        told = experiment.model_copy(update={"why": whys})
        cells += _cells(told, column, rows, (table, reason))
        if experiment.figure == "lines":
            lines += _lines(column, places, found)
        folders += places
    return Found(tuple(cells), tuple(lines), tuple(missing), **sources(folders))


def _played(plan: Leaving, seed: int, place: Path, shelf: Shelf) -> tuple[Outcome, ...]:
    """Play one seed's settings, those that are not there; time what it took at first."""
    began = time.monotonic()
    with shelf.shown(f"{plan.name}, seed {seed}"):
        found = outcomes(plan, seed, place, lambda _: None)
    if not (place / "played.json").is_file():
        seconds = round(time.monotonic() - began, 1)
        note(place / "played.json", {"commit": commit(), "seconds": seconds})
    return found


def _lines(
    column: Column, places: Sequence[Path], found: Sequence[Sequence[Outcome]]
) -> Iterator[Line]:
    """Average each setting's accuracy per round, as it stood at the end, over the seeds.

    Settings whose run is another's have its line.
    """
    for same in zip(*found, strict=True):
        if not all(each.shared_with for each in same):
            name = _row(same[0]) + (f", x={same[0].x}" if same[0].x else "")
            runs = [
                load(place / (each.shared_with or each.name))
                for place, each in zip(places, same, strict=True)
            ]
            every = [utility_lines(run.history)[OVERALL] for run in runs]
            yield Line(column.name, name, averaged(every))


def _row(outcome: Outcome) -> str:
    """Return the row of the paper's table that a setting belongs to."""
    k = outcome.k
    return NAMES.get(outcome.name, outcome.name) if k is None else f"k={k}"


def _by_row(found: Sequence[Outcome]) -> ByRow:
    rows: dict[str, list[Outcome]] = {}
    for each in found:
        rows.setdefault(_row(each), []).append(each)
    return rows


def _cells(
    experiment: Experiment, column: Column, rows: ByRow, known: tuple[Table, str]
) -> Iterator[Cell]:
    table, reason = known
    names = rows or dict.fromkeys(
        [
            *(NAMES.get(each, each) for each in experiment.baselines),
            *(f"k={k}" for k in experiment.k),
        ],
        (),
    )
    for measure in experiment.measures:
        title, of = MEASURES[measure]
        for name, same in names.items():
            printed = (
                table.get((column.printed or column.name, name))
                if measure == experiment.measures[0]
                else None
            )
            yield Cell(
                row=name,
                column=column.name,
                measure=title,
                values=tuple(of(each) for each in same if not each.shared_with),
                printed=printed,
                why=experiment.why.get(measure, ""),
                reason=reason,
            )


def _seconds(outcome: Outcome) -> float | None:
    return fmean(outcome.seconds) if outcome.seconds else None


def _replays(outcome: Outcome) -> float:
    return float(len(outcome.seconds) - outcome.answers.get("deny", 0))


MEASURES = {
    "accuracy": ("accuracy", lambda outcome: outcome.accuracy),
    "seconds": ("seconds per request", _seconds),
    "replays": ("requests that were not denied", _replays),
    "bytes": ("bytes on the server", lambda outcome: float(outcome.server_bytes)),
}
"""Title, and how to read it off an outcome."""
