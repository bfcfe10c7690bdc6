"""Bringing a run's story, its settings and its pictures together on a page."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from covey.bounded_io import read_text
from covey.build import build_run
from covey.components.foreign_code import no_foreign_code
from covey.config import brings_clients, without_passwords
from covey.data import Population
from covey.errors import CoveyError
from covey.history import History
from covey.report import Reported, write_report
from covey.runs.story import RunRecord, read_run_record
from covey.runtime import RunFolder
from covey.runtime.copies import hash_of, keep_copy, record_copy
from covey.types import Handle

__all__ = ["baseline_of", "on_record", "page_of", "page_over", "reported"]

SAMPLES = 8


def page_of(
    path: Path,
    population: Population | None = None,
    out: Path | None = None,
    record: RunRecord | None = None,
) -> Path:
    """Write one run's page; without its data it has no sample images."""
    with no_foreign_code():
        return _page_of(path, _samples(population or _population(path)), out, record)


def _page_of(
    path: Path,
    samples: dict[str, Tensor] | None,
    out: Path | None,
    record: RunRecord | None,
) -> Path:
    shown, own = [reported(path, samples, record)], path / "report.html"
    if out is None or out.resolve() == own.resolve():
        return write_report(shown, own)
    beside = ("metrics.csv", "figures/*.png")
    with on_record([path], "report", out, beside):
        return write_report(shown, out)


def page_over(paths: Sequence[Path], out: Path | None = None) -> Path:
    """Write a page that compares several runs."""
    page = out or Path("report.html")
    with no_foreign_code(), on_record(paths, "comparison", page):
        shown = [reported(path) for path in paths]
        return write_report(shown, page)


@contextmanager
def on_record(
    runs: Sequence[Path],
    what: Literal["report", "comparison", "explanation"],
    page: Path,
    beside: tuple[str, ...] = (),
    subject: Handle = "",
) -> Generator[None]:
    """Put on record, with every run that it shows, a page that the block writes."""
    more = {"beside": beside, "subject": subject}
    kept = [
        (folder, record_copy(folder, what, page, "", more))
        for folder in map(RunFolder, runs)
    ]
    yield
    for folder, copy in kept:
        keep_copy(folder, replace(copy, sha256=hash_of(page) or ""))


def reported(
    path: Path,
    samples: dict[str, Tensor] | None = None,
    record: RunRecord | None = None,
) -> Reported:
    """Read all that a report shows of one run, and of the FedAvg run beside it."""
    folder = RunFolder.existing(path)
    events = record or read_run_record(folder)
    return Reported(
        name=path.name,
        history=events.history,
        config_toml=without_passwords(read_text(folder.config_path)),
        ledger_head=events.ledger_head,
        samples=samples,
        baseline=baseline_of(path),
    )


def baseline_of(path: Path) -> History | None:
    """Return the story of the FedAvg run beside a run, if there is one."""
    beside = RunFolder(path / "baseline")
    has_begun = beside.ledger_path.is_file()
    return read_run_record(beside).history if has_begun else None


def _population(path: Path) -> Population | None:
    """Read the run's data again, if they are still there and may be shown."""
    config = RunFolder.existing(path).config()
    if brings_clients(config):
        return None  # users' own clients, and no test images beside them
    try:
        return build_run(config).population  # a user's code is refused here
    except CoveyError:
        return None


def _samples(population: Population | None) -> dict[str, Tensor] | None:
    """Return a few unseen images of each group: never a client's own."""
    if population is None or not population.groups:
        return None
    if any(test.inputs.dtype != torch.uint8 for test in population.test):
        return None  # features are no pictures
    return {
        group.name: test.inputs[:SAMPLES]
        for group, test in zip(population.groups, population.test, strict=True)
    }
