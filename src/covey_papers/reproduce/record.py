"""What an experiment found, where that comes from, and runs that tables share."""

import hashlib
import json
import math
import platform
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch
from pydantic import TypeAdapter
from scipy.stats import t as student

from covey import Config, Run
from covey.base.as_json import json_of
from covey.base.files import num_cores, replace_whole
from covey.runs.auditing import is_finished
from covey.runs.session import Observer
from covey.settings.aggregation import anonymity_of
from covey.settings.load import idle_settings, that_matter


@cache
def commit() -> str:
    """Return the commit of the source, "+" where files differ from it: covey's too.

    Where covey is installed without its repository: its version.
    """
    home = Path(__file__).parents[2]
    try:
        _git(home, "ls-files", "--error-unmatch", __file__)  # not somebody else's
        head = _git(home, "rev-parse", "HEAD")
        changed = _git(home, "status", "--porcelain", "--untracked-files=no", ".")
    except (OSError, subprocess.CalledProcessError):
        return f"covey {version('covey')}"
    return head + ("+" if changed else "")


def machine() -> str:
    """Return the processor, the cores that may be used, and what computes on them."""
    cores = num_cores()
    python, pytorch = platform.python_version(), torch.__version__
    return f"{_processor()}, {cores} cores, Python {python}, torch {pytorch}"


def _processor() -> str:
    """Return the processor's name; Linux has it, elsewhere its kind must do."""
    facts = Path("/proc/cpuinfo")
    if facts.is_file():
        for line in facts.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _git(where: Path, *words: str) -> str:
    process = subprocess.run(  # noqa: S603 - fixed words
        ["git", "-C", str(where), *words],  # noqa: S607 - the user's own git
        capture_output=True,
        check=True,
        text=True,
    )
    return process.stdout.strip()


Points = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Printed:
    """A number that a paper prints, and where.

    Attributes:
        deviation: the standard deviation that it prints beside it, if any.
        where: table, row and column.
    """

    value: float
    deviation: float | None
    where: str


@dataclass(frozen=True, slots=True)
class Cell:
    """One measure of one row and column.

    Attributes:
        measure: as a title.
        values: one per repeat; None where it is unknown.
        why: why the paper's number may lie elsewhere.
        reason: why there are no values at all: files that are missing.
        says: the verdict, where it is not about a paper's number in an interval.
    """

    row: str
    column: str
    measure: str
    values: tuple[float | None, ...]
    printed: Printed | None = None
    why: str = ""
    reason: str = ""
    says: str = ""

    @property
    def known(self) -> tuple[float, ...]:
        """The values that are known."""
        return tuple(value for value in self.values if value is not None)

    @property
    def mean(self) -> float | None:
        """Over the repeats; unknown if one of them is, or it would mislead."""
        whole = self.values and len(self.known) == len(self.values)
        return fmean(self.known) if whole else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """Student's 95% interval of the mean; None for a single repeat.

        mean +- t_{0.975, n-1} s / sqrt(n).
        """
        n = len(self.known)
        if self.mean is None or n < 2:
            return None
        half = float(student.ppf(0.975, n - 1)) * stdev(self.known) / math.sqrt(n)
        return self.mean - half, self.mean + half

    @property
    def is_within(self) -> bool:
        """Whether the paper prints a number, and it lies within the interval."""
        if self.printed is None or self.interval is None:
            return False
        low, high = self.interval
        return low <= self.printed.value <= high

    @property
    def verdict(self) -> str:
        """Say whether the paper's number lies within the interval, or why not."""
        if self.mean is None:
            return self.reason or "unknown: some run has no such figure"
        if self.says or self.printed is None:
            return self.says or "not printed as a number"
        if self.is_within:
            return "within the interval"
        sentence = "one run has no interval."
        if self.interval:
            side = "above" if self.printed.value > self.interval[1] else "below"
            sentence = f"{side} the interval."
        return " ".join(filter(None, [sentence, self.why]))


@dataclass(frozen=True, slots=True)
class FigureLine:
    """Points of a line in a figure.

    Attributes:
        panel: which axes it belongs to.
        bound: whether it is a theorem's and not measured.
    """

    panel: str
    name: str
    points: Points
    bound: bool = False


def averaged(repeats: Sequence[Sequence[tuple[float, float]]]) -> Points:
    """Return the mean of y over the repeats, at every x that all of them reached."""
    return tuple((float(at[0][0]), fmean(y for _, y in at)) for at in zip(*repeats, strict=False))


@dataclass(frozen=True, slots=True)
class Findings:
    """What playing an experiment gave.

    Attributes:
        commits: of the code that the runs were played with.
        seconds: that playing them took, here or earlier.
    """

    cells: tuple[Cell, ...] = ()
    lines: tuple[FigureLine, ...] = ()
    notes: tuple[str, ...] = ()
    commits: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def known(self) -> bool:
        """Whether anything was measured: data may be missing for every column."""
        return bool(self.lines) or any(cell.known for cell in self.cells)


@dataclass(frozen=True, slots=True)
class ExperimentRecord:
    """A finished experiment, as its page and tables show it.

    Attributes:
        quick: whether it is the scaled-down form.
        seeds: of the repeats.
        sizes: rounds, clients and images of each column, in words.
        axes: what a figure shows along and up.
    """

    name: str
    title: str
    paper: str
    shows: str
    quick: bool
    figure: str
    axes: tuple[str, str]
    seeds: tuple[int, ...]
    command: str
    machine: str
    date: str
    sizes: Mapping[str, str] = field(default_factory=dict[str, str])
    findings: Findings = Findings()

    @property
    def stem(self) -> str:
        """How its files are called."""
        return f"{self.name}-quick" if self.quick else self.name


def records(out: Path) -> list[ExperimentRecord]:
    """Return everything that has been reproduced into a folder, by name."""
    read = TypeAdapter(ExperimentRecord).validate_json
    return [read(path.read_bytes()) for path in sorted(out.glob("*.json"))]


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """What tables and figures ask of a finished run.

    Attributes:
        commit: of the code that played it.
        seconds: that playing it took.
        values: by the name of the measure; None: unknown.
        lines: accuracy by round, of all clients and of each group.
    """

    commit: str = ""
    seconds: float = 0.0
    values: Mapping[str, float | None] = field(default_factory=dict[str, float | None])
    lines: Mapping[str, Points] = field(default_factory=dict[str, Points])


Shown = Callable[[str], AbstractContextManager[Observer]]
"""Shows a run as it goes on, under a title."""

Measuring = Callable[[Path, Iterable[str]], MeasuredRun]
"""Measures these things of the finished run in a folder."""


@dataclass(frozen=True, slots=True)
class RunCache:
    """A folder of runs, and what was measured of them.

    A measured run is not played again, even if its folder is gone: machines may change
    between tables, and models take more room than figures.

    Attributes:
        shown: how a run that has to be played is shown meanwhile.
        measured: the folder of what was measured, a small file for each run.
    """

    folder: Path
    shown: Shown
    measured: Path

    def measure(
        self, config: Config, title: str, names: Iterable[str], measuring: Measuring
    ) -> MeasuredRun:
        """Return these measures of a run, which is played where one of them is not known yet."""
        file = self.measured / f"{digest(config)}.json"
        known = MeasuredRun()
        if file.is_file():
            known = TypeAdapter(MeasuredRun).validate_json(file.read_bytes())
        wanted = {*names, *known.values}
        if wanted > known.values.keys():  # all of them, as the run may be another commit's now
            known = measuring(self.run(config, title), sorted(wanted))
            self.measured.mkdir(parents=True, exist_ok=True)
            note(file, known)
        return known

    def run(self, config: Config, title: str) -> Path:
        """Return a finished run of these settings: played now, unless it is there.

        One that was stopped is carried on to the result that it would have had.
        """
        path = self.folder / digest(config)
        if is_finished(path):
            return path
        run = Run.of(path, config)
        with self.timed(path, title) as observe:
            run.resume(observe)
        return path

    @contextmanager
    def timed(self, path: Path, title: str) -> Iterator[Observer]:
        """Show what is played into a folder, and note there what it took at first."""
        began = time.monotonic()
        with self.shown(title) as observe:
            yield observe
        if not (path / "played.json").is_file():
            seconds = round(time.monotonic() - began, 1)
            note(path / "played.json", {"commit": commit(), "seconds": seconds})


def digest(config: Config) -> str:
    """Return a short hash of the settings that can change the result."""
    idle = {setting.key for setting in idle_settings(config)}
    heeded = {key: value for key, value in that_matter(config).items() if key not in idle}
    matters = heeded | {"method.name": config.method.name}
    if not config.data.simulates and config.data.reads_files:
        matters["data.dir"] = config.data.dir
    hidden = anonymity_of(config)
    if hidden and config.leaving.request_probability > 0:
        matters["aggregation.deniability_threshold"] = hidden.deniability_threshold
    whole = json.dumps(matters, sort_keys=True)
    return hashlib.sha256(whole.encode()).hexdigest()[:16]


def note(path: Path, what: object) -> None:
    """Write a small file, all of it or nothing."""
    replace_whole(path, json.dumps(json_of(what), indent=1, allow_nan=False).encode())


def played_as(path: Path) -> MeasuredRun:
    """Return which code played a run, and how many seconds that took; nothing is measured."""
    file = path / "played.json"
    return MeasuredRun(**json.loads(file.read_text("utf-8"))) if file.is_file() else MeasuredRun()


def sources_of(paths: Iterable[Path]) -> dict[str, Any]:
    """Return which code played the runs in these folders, and how many seconds that took."""
    return sources(played_as(path) for path in sorted(set(paths)))


def sources(runs: Iterable[MeasuredRun]) -> dict[str, Any]:
    """Return which code played these runs, and how many seconds that took."""
    played = [run for run in runs if run.commit]
    return {
        "commits": tuple(sorted({run.commit for run in played})),
        "seconds": sum((run.seconds for run in played), 0.0),
    }
