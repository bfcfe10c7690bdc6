"""A run on a page, as figures in a notebook, and as one live line."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from covey.base.errors import CoveyError
from covey.base.files import read_text
from covey.base.history import History
from covey.base.own_code import no_foreign_code
from covey.base.rng import Streams
from covey.data.population import Population
from covey.leaving.copies import on_record
from covey.report.page import write_report
from covey.report.queries import Reported, round_line
from covey.runs.folder import RunFolder
from covey.runs.ledger_record import LedgerRecord
from covey.runs.reading import read_record
from covey.runs.session import Observer
from covey.settings.clients import population_and_notes
from covey.settings.load import without_passwords

if TYPE_CHECKING:
    from matplotlib.figure import Figure


SAMPLES = 8


def page_of(
    folder: RunFolder,
    population: Population | None = None,
    out: Path | None = None,
    record: LedgerRecord | None = None,
) -> Path:
    """Write one run's page; without its data it has no sample images.

    In the run's own folder `figures/` and `metrics.csv` are written as well.
    """
    with no_foreign_code():
        shown = [reported(folder, _samples(population or _population(folder)), record)]
        own = folder.path / "report.html"
        if out is None or out.resolve() == own.resolve():
            return write_report(shown, own)
        with on_record([folder.path], "report", out):
            return write_report(shown, out, alone=True)


def page_over(paths: Sequence[Path], out: Path | None = None) -> Path:
    """Write a page that compares several runs."""
    page = out or Path("report.html")
    with no_foreign_code(), on_record(paths, "comparison", page):
        return write_report([reported(RunFolder.existing(path)) for path in paths], page)


def reported(
    folder: RunFolder, samples: dict[str, Tensor] | None = None, record: LedgerRecord | None = None
) -> Reported:
    """Read all that a report shows of one run, and of the FedAvg run beside it."""
    events = record or read_record(folder)[0]
    return Reported(
        name=folder.path.name,
        history=events.history,
        config_toml=without_passwords(read_text(folder.config_path)),
        ledger_head=events.head,
        samples=samples,
        baseline=baseline_of(folder.path),
    )


def baseline_of(path: Path) -> History | None:
    """Return the history of the FedAvg run beside a run, if there is one."""
    beside = RunFolder(path / "baseline")
    return read_record(beside)[0].history if beside.ledger_path.is_file() else None


def _population(folder: RunFolder) -> Population | None:
    """Read the run's data again, if they are still there and may be shown."""
    config = folder.config()
    try:
        if config.has_own_data or config.engine.is_remote:
            return None  # users' own clients, and no test images beside them
        return population_and_notes(config, None, Streams(config.seed))[0]
    except CoveyError:  # or a user's code would have to run
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


@dataclass(frozen=True, slots=True)
class Plots:
    """The pictures of a run's report, as matplotlib figures: to be shown, changed, saved.

    A notebook shows what a cell ends with: `run.plot.accuracy()`.

    Attributes:
        history: returns the run's history as it is now.
        baseline: the same of the FedAvg run beside it, if there is one.
    """

    history: Callable[[], History]
    baseline: Callable[[], History | None]

    def accuracy(self) -> "Figure":
        """Draw accuracy on unseen data per round, overall and by group."""
        from covey.report.figures import accuracy_figure

        return accuracy_figure(self.history(), self.baseline())

    def risk(self) -> "Figure":
        """Draw each cluster's measured risk per round, beside the truth at the end."""
        return self._drawn("risk")

    def sizes(self) -> "Figure":
        """Draw how many clients sit in each cluster, and how many moved, per round."""
        return self._drawn("clusters")

    def violations(self) -> "Figure":
        """Draw what each client accepts against its final model's risk."""
        return self._drawn("violations")

    def fairness(self) -> "Figure":
        """Draw each gap between groups."""
        return self._drawn("fairness")

    def privacy_spent(self) -> "Figure":
        """Draw epsilon over the rounds, where noise is accounted for."""
        return self._drawn("spent")

    def _drawn(self, name: str) -> "Figure":
        from covey.report.figures import FIGURES

        return FIGURES[name](self.history())


def in_notebook() -> bool:
    """Say whether a notebook's kernel runs this program."""
    shell: Any = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and getattr(shell, "kernel", None) is not None


def live_line(title: str) -> Observer:
    """Return what shows the newest round of a run in one line, and changes that line."""
    display: Any = import_module("IPython.display").display if in_notebook() else None
    shown: Any = None
    longest = 0

    def observe(history: History) -> None:
        nonlocal longest, shown
        done = history.finished is not None
        line = round_line(history) if history.rounds else "round 1 is under way"
        if history.preparing:
            line = "features of {:,} records of {:,}".format(*history.preparing)
        line = f"{title}: {'finished, ' if done and history.rounds else ''}{line}"
        if display is None:
            longest = max(longest, len(line))
            sys.stderr.write("\r" + line.ljust(longest) + ("\n" if done else ""))
            sys.stderr.flush()
        elif shown is None:
            shown = display({"text/plain": line}, raw=True, display_id=True)
        else:
            shown.update({"text/plain": line}, raw=True)

    return observe
