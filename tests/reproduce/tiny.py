"""Experiments of seconds, on the embedded digits, and a cache that shows nothing."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from covey.runs.session import Observer
from covey_papers.reproduce.record import Cell, ExperimentRecord, Findings, RunCache
from covey_papers.reproduce.specification import Column, Experiment, TableRow

TINY: dict[str, Any] = {
    "rounds": 2,
    "data": {"name": "digits"},
    "model": {"name": "mlp"},
    "train": {
        "local_steps": 0,
        "local_epochs": 5,
        "batch_size": 10,
        "learning_rate": 0.05,
        "optimizer": {"momentum": 0.9},
    },
    "population": {
        "clients": 8,
        "examples_per_client": 30,
        "holdout": 0.2,
        "audit_examples": 200,
        "minority_share": 0.25,
        "shift": "brightness",
        "shift_per": "image",
        "minority": [0.2, 0.4],
        "majority": [0.9, 1.2],
    },
}
"""What columns on the base "mnist" set, to be played in a second or two."""

FEDAVG = TableRow(name="FedAvg", settings={"method": {"name": "fedavg"}})
IFCA = TableRow(
    name="IFCA",
    settings={"method": {"name": "ifca", "initialisation": "groups", "same_batch": False}},
)


def column(name: str = "digits", **changed: Any) -> Column:
    return Column(name=name, base="mnist", settings={**TINY, **changed})


def experiment(**changed: Any) -> Experiment:
    fields: dict[str, Any] = {
        "title": "Tiny",
        "kind": "federations",
        "paper": "ifca-mir",
        "shows": "nothing",
        "minutes": (0.0, 0.0),
        "repeats": 1,
        "measures": ("accuracy",),
        "columns": (column(),),
        "rows": (FEDAVG,),
    }
    return Experiment(**{**fields, **changed})


@contextmanager
def unseen(title: str) -> Generator[Observer]:
    yield lambda _: None


def cache(folder: Path) -> RunCache:
    return RunCache(folder, unseen, folder / "measured")


def cell(measure: str, row: str, *values: float | None, **fields: Any) -> Cell:
    column = fields.pop("column", "digits")
    return Cell(row=row, column=column, measure=measure, values=values, **fields)


def record(**fields: Any) -> ExperimentRecord:
    return ExperimentRecord(
        **{
            "name": "tiny",
            "title": "A tiny table",
            "paper": "Nobody, Nothing, 2026",
            "shows": "nothing",
            "quick": False,
            "figure": "bars",
            "axes": ("round", "accuracy"),
            "seeds": (0, 1, 2),
            "command": "covey reproduce tiny --set rounds=2",
            "machine": "an abacus, 2 cores",
            "date": "2026-01-02T03:04+00:00",
            "sizes": {"digits": "2 rounds, 8 clients with 30 examples, mlp"},
            "findings": Findings(),
            **fields,
        }
    )


def times(folder: Path) -> dict[Path, int]:
    """When each file below a folder was written."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
