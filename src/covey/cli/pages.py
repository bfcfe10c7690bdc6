"""Bringing a run's story, its settings and its pictures together on a page."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from covey.api import load
from covey.assembly import assemble
from covey.data import Population
from covey.errors import CoveyError
from covey.report import Reported, write_report
from covey.simulation import RunFolder

__all__ = ["page_of", "page_over", "reported"]

SAMPLES = 8


def page_of(
    path: Path, population: Population | None = None, out: Path | None = None
) -> Path:
    """Write one run's page; without its data it has no sample images."""
    samples = _samples(population or _population(path))
    return write_report([reported(path, samples)], out or path / "report.html")


def page_over(paths: Sequence[Path], out: Path | None = None) -> Path:
    """Write a page that compares several runs."""
    return write_report([reported(path) for path in paths], out or Path("report.html"))


def reported(path: Path, samples: dict[str, Tensor] | None = None) -> Reported:
    """Read all that a report shows of one run, and of the FedAvg run beside it."""
    result = load(path)
    baseline = path / "baseline"
    has_baseline = (baseline / "config.toml").is_file()
    return Reported(
        name=path.name,
        history=result.history,
        config_toml=RunFolder(path).config_path.read_text(encoding="utf-8"),
        ledger_head=result.ledger_head,
        samples=samples,
        baseline=load(baseline).history if has_baseline else None,
    )


def _population(path: Path) -> Population | None:
    """Read the run's data again, if they are still there."""
    try:
        return assemble(RunFolder.existing(path).config()).population
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
