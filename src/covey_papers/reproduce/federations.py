"""Experiments over federations and over leaving: rows of methods by columns of data."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any

from covey import Config, DataError, Figure, History, load
from covey.base.built_ins import LOSS
from covey.base.metrics import GAPS
from covey.base.params import norm, subtract
from covey.report.queries import OVERALL, accuracies, group_sizes, home_of, utility_lines
from covey.report.summary import Summary, summary, violations
from covey_papers.reproduce.answered_runs import Outcome, outcomes
from covey_papers.reproduce.mixtures import KINDS, Attacked, attacked
from covey_papers.reproduce.record import (
    Cell,
    FigureLine,
    Findings,
    MeasuredRun,
    Points,
    Printed,
    RunCache,
    averaged,
    digest,
    played_as,
    sources,
    sources_of,
)
from covey_papers.reproduce.specification import (
    Column,
    Experiment,
    Table,
    TableRow,
    non_members_reason,
    printed_table,
    with_settings,
)

Value = float | None


GROUPS = {"majority": -1, "minority": 0}

UNBOUNDED = "unbounded: in some run it is 0, and nothing is divided by 0"

NAMES = {"retrain": "fedAvg", "federaser": "fedEraser"}
"""What the second paper calls the baselines."""

EVERY_ANSWER = TableRow(name="every answer")

LEAVING_MEASURES: Mapping[str, tuple[str, Callable[[Outcome], Value]]] = {
    "accuracy": ("accuracy", lambda own: own.accuracy),
    "seconds": ("seconds per request", lambda own: fmean(own.seconds) if own.seconds else None),
    "replays": (
        "requests that were not denied",
        lambda own: float(len(own.seconds) - own.answers.get("deny", 0)),
    ),
    "bytes": ("bytes on the server", lambda own: float(own.server_bytes)),
}
"""Title, and how to read it off an outcome."""


@dataclass(frozen=True)  # no slots: what several measures ask for is found once
class PlayedRun:
    """A finished run, as a measure looks at it."""

    path: Path
    history: History

    @classmethod
    def of(cls, path: Path) -> "PlayedRun":
        """Read a run."""
        return cls(path, load(path).history)

    @cached_property
    def summary(self) -> Summary:
        """What `covey run --json` prints of it."""
        return summary(self.history)

    @cached_property
    def attacked(self) -> tuple[Attacked, ...]:
        """Its models, attacked with each kind of non-members."""
        return attacked(self.path)

    def group(self, which: int) -> str:
        """Return the smallest group's name (0), or the largest one's (-1)."""
        named = [g for g in ("minority", "majority") if g in group_sizes(self.history)]
        return (named or list(group_sizes(self.history)))[which]

    def accuracy(self, which: int) -> Value:
        """Return a group's accuracy."""
        return accuracies(self.history)[self.group(which)]

    def model(self, which: int, what: str) -> Value:
        """Return a figure of a group's model: of those who chose it, or who left it."""
        model = self.summary.group_models.get(self.group(which))
        value = getattr(model, what, None)
        return None if value is None else float(value)

    def true_risk(self, which: int) -> Value:
        """Return the true risk of the cluster that holds most of a group."""
        home = home_of(self.history, self.group(which))
        return home.truth.figure.value if home else None

    def reported_risk(self, which: int) -> Value:
        """Return the same cluster's risk as clients received it."""
        home = home_of(self.history, self.group(which))
        figure = self.history.in_force.get(home.cluster) if home else None
        return figure.risk if figure else None

    def by_non_members(self, which: int, kind: str, what: str) -> Value:
        """Return a group's `risk` or `blind` figure against one kind of non-members."""
        wanted = kind, self.group(which)
        (attack,) = (e for e in self.attacked if (e.non_members, e.group) == wanted)
        return getattr(attack, what)

    def summarised(self, *keys: str) -> Value:
        """Return a figure of the summary; None where it, or what holds it, is unknown."""
        value: Any = self.summary
        for key in keys:
            value = value[key] if isinstance(value, Mapping) else getattr(value, key, None)
        value = value.value if isinstance(value, Figure) else value
        return None if value is None else float(value)

    def violations(self, key: str) -> Value:
        """Count with the papers' attack, whatever others were run."""
        count = getattr(violations(self.history, LOSS), key)
        return None if count is None else float(count)

    @property
    def measured_violations(self) -> Value:
        """Count the clients whose model's risk, as they received it, is above what they accept."""
        began, risks = self.history.started, self.history.in_force
        used = self.history.assignment
        if began is None or not used or not risks.keys() >= set(used.values()):
            return None
        taus = began.risk_thresholds
        return float(sum(risks[j].risk > taus[handle] for handle, j in used.items()))


@dataclass(frozen=True, slots=True)
class Measure:
    """A number of a run.

    Attributes:
        title: how it is called in a table.
        of: finds it; None where it is unknown.
        beside: measures that show why a paper's number may lie elsewhere.
        why: says so, given the values of these, each over all runs.
    """

    title: str
    of: Callable[[PlayedRun], Value]
    beside: tuple[str, ...] = ()
    why: Callable[..., str] = lambda: ""


def _measured(title: str, of: Callable[..., Value], *args: object) -> Measure:
    return Measure(title, lambda run: of(run, *args))


MEASURES: Mapping[str, Measure] = {
    "accuracy": Measure("accuracy", lambda run: accuracies(run.history)[OVERALL]),
    **{
        f"accuracy_{name}": _measured(f"accuracy, {name}", PlayedRun.accuracy, which)
        for name, which in GROUPS.items()
    },
    **{
        f"{short}_{name}": _measured(f"{title} {name}'s model", PlayedRun.model, which, what)
        for short, title, what in (
            ("model_accuracy", "accuracy of the", "accuracy"),
            ("model_clients", "clients of the", "clients"),
            ("moved", "clients that left the", "moved"),
        )
        for name, which in GROUPS.items()
    },
    **{
        f"mia_{name}": replace(
            _measured(f"MIA accuracy, {name}", PlayedRun.true_risk, which),
            beside=(f"mia_{name}", f"mia_{name}_pooled", f"blind_{name}_pooled"),
            why=non_members_reason,
        )
        for name, which in GROUPS.items()
    },
    **{
        f"measured_{name}": _measured(f"measured risk, {name}", PlayedRun.reported_risk, which)
        for name, which in GROUPS.items()
    },
    **{
        f"{short}_{name}_{kind}": _measured(
            f"{title}, {name}, {kind} non-members", PlayedRun.by_non_members, which, kind, what
        )
        for short, title, what in (
            ("mia", "MIA accuracy", "risk"),
            ("blind", "without the model", "blind"),
        )
        for name, which in GROUPS.items()
        for kind in KINDS
    },
    "violations": _measured("violations", PlayedRun.violations, "count"),
    "violations_lower": _measured(
        "violations, 95% lower bound", PlayedRun.violations, "count_lower"
    ),
    "violations_measured": Measure(
        "violations, by the measured risk", lambda run: run.measured_violations
    ),
    "violations_exposed": _measured(
        "clients ever exposed above their threshold", PlayedRun.violations, "count_exposed"
    ),
    "exposure": _measured("mean exposure", PlayedRun.summarised, "exposure", "mean"),
    **{
        gap: _measured(gap.replace("_", " "), PlayedRun.summarised, "fairness", gap, "mean")
        for gap in GAPS
    },
    "adjusted_rand_index": _measured(
        "adjusted Rand index", PlayedRun.summarised, "adjusted_rand_index"
    ),
}


Runs = Mapping[tuple[str, str], Mapping[str, MeasuredRun]]
"""Row and column to its repeats, by the digests of their settings."""


def federations(experiment: Experiment, cache: RunCache) -> Findings:
    """Play every cell with seeds 0, 1, ..., and measure what the experiment names.

    A column whose data are not there is left out, and says which files to put where.
    """
    runs, missing = _played(experiment, cache)
    every = {key: run for repeats in runs.values() for key, run in repeats.items()}
    return Findings(
        cells=tuple(_cells(experiment, runs, missing, cache.folder)),
        lines=tuple(_lines(runs)) if experiment.figure == "lines" else (),
        notes=tuple(missing.values()),
        **sources(every.values()),
    )


def _played(experiment: Experiment, cache: RunCache) -> tuple[Runs, Mapping[str, str]]:
    """Return the runs, and per column without data the reason."""
    runs: dict[tuple[str, str], dict[str, MeasuredRun]] = {}
    missing: dict[str, str] = {}
    wanted = [
        (seed, column, row)
        for seed in range(experiment.repeats)  # an early stop leaves whole tables
        for column in experiment.columns
        for row in experiment.rows_of(column)
        if seed < (row.repeats or experiment.repeats)
    ]
    for seed, column, row in wanted:
        if column.name in missing:
            continue
        config = Config.of({**experiment.settings_of(column, row), "seed": seed})
        title = f"{column.name}, {row.name}, seed {seed}"
        try:
            if experiment.distances:  # of models, which only the run has
                cache.run(config, title)
            run = cache.measure(config, title, _names(experiment, row, column), measured)
        except DataError as error:
            missing[column.name] = f"not played: {error}"
        else:
            runs.setdefault((row.name, column.name), {})[digest(config)] = run
    return runs, missing


def measured(path: Path, names: Iterable[str]) -> MeasuredRun:
    """Measure these things of the finished run in a folder."""
    run = PlayedRun.of(path)
    lines = {name: _points(line) for name, line in utility_lines(run.history).items()}
    return replace(
        played_as(path), values={name: MEASURES[name].of(run) for name in names}, lines=lines
    )


def _points(line: Iterable[tuple[int, float]]) -> Points:
    return tuple((float(at), value) for at, value in line)


def _names(experiment: Experiment, row: TableRow, column: Column) -> Iterator[str]:
    """Yield the measures that a cell shows, and those that explain them."""
    yield from (*experiment.measures, *experiment.factors, *experiment.differences)
    for name in experiment.measures:
        if _printed(experiment, row, column, name):
            yield from MEASURES[name].beside


def _over(runs: Mapping[str, MeasuredRun], name: str) -> Sequence[Value]:
    """Return a measure's value in each repeat."""
    return [run.values[name] for run in runs.values()]


def _cells(
    experiment: Experiment, runs: Runs, missing: Mapping[str, str], folder: Path
) -> Iterator[Cell]:
    for column in experiment.columns:
        for row in experiment.rows_of(column):
            own = runs.get((row.name, column.name), {})
            config = Config.of(experiment.settings_of(column, row))
            for name in experiment.measures:
                of, printed = MEASURES[name], _printed(experiment, row, column, name)
                why = ""
                if own and printed:
                    text = with_settings(experiment.why.get(name, ""), config)
                    why = f"{text} {of.why(*(_over(own, other) for other in of.beside))}".strip()
                yield Cell(
                    row=row.name,
                    column=column.name,
                    measure=of.title,
                    values=tuple(_over(own, name)),
                    printed=printed,
                    why=why,
                    reason=missing.get(column.name, ""),
                )
            reason = missing.get(column.name)
            yield from (
                replace(cell, reason=reason) if reason else cell
                for cell in _compared(experiment, runs, row, column, folder)
            )


def _compared(
    experiment: Experiment, runs: Runs, row: TableRow, column: Column, folder: Path
) -> Iterator[Cell]:
    """Compare a row with `against`, seed by seed: both saw the same data."""
    theirs = runs.get((experiment.against, column.name), {})
    own = runs.get((row.name, column.name), {})
    if row.name == experiment.against:
        return
    for name in experiment.factors:
        ends = _over(theirs, name), _over(own, name)
        values = tuple(None if a is None or not b else a / b for a, b in zip(*ends, strict=False))
        title = f"{MEASURES[name].title}: {experiment.against}'s / own"
        reason = UNBOUNDED if all(None not in values for values in ends) else ""
        yield Cell(row.name, column.name, title, values, reason=reason)
    for name in experiment.differences:
        pairs = zip(_over(theirs, name), _over(own, name), strict=False)
        values = tuple(None if a is None or b is None else b - a for a, b in pairs)
        title = f"{MEASURES[name].title} minus {experiment.against}'s"
        yield Cell(row.name, column.name, title, values)
    if experiment.distances:
        pairs = zip(theirs, own, strict=False)
        models = [[load(folder / key).params(0) for key in both] for both in pairs]
        values = tuple(norm(subtract(b, a)) / norm(a) for a, b in models)
        title = f"distance to {experiment.against}'s model, relative to its length"
        yield Cell(row.name, column.name, title, values)


def _printed(experiment: Experiment, row: TableRow, column: Column, measure: str) -> Printed | None:
    name = row.printed.get(measure)
    if not (experiment.table and name):
        return None
    table = printed_table(experiment.paper, experiment.table)
    return table.get((name, column.printed or column.name))


def _lines(runs: Runs) -> Iterator[FigureLine]:
    """Average each group's accuracy per round over the repeats."""
    for (row, column), repeats in runs.items():
        every = [run.lines for run in repeats.values()]
        for group in list(every[0])[1:]:
            points = averaged([lines[group] for lines in every])
            yield FigureLine(column, f"{row}, {group}", points)


ByRow = Mapping[str, Sequence[Outcome]]


def leaving(experiment: Experiment, cache: RunCache) -> Findings:
    """Play every column's requests under every baseline, every k and every x.

    The paper's table prints the first of the measures. A row of anonymity sets has one
    value per x, as the paper's mean and deviation are over x; those x that answer every
    request alike share a run, and count once. Every setting of a column gets the same
    requests.
    """
    table = printed_table(experiment.paper, experiment.table) if experiment.table else {}
    cells: list[Cell] = []
    lines: list[FigureLine] = []
    missing: list[str] = []
    folders: list[Path] = []
    for column in experiment.columns:
        settings = experiment.settings_of(column, EVERY_ANSWER)
        folder = cache.folder / f"leaving-{digest(Config.of(settings))}"
        places = [folder / f"seed-{seed}" for seed in range(experiment.repeats)]
        by_seed, reason = list[Sequence[Outcome]](), ""
        try:
            for seed, place in enumerate(places):
                with cache.timed(place, f"{column.name}, seed {seed}"):
                    by_seed.append(outcomes(experiment, settings, seed, place))
        except DataError as error:
            by_seed, reason = [], f"not played: {error}"
            missing.append(reason)
        rows: dict[str, list[Outcome]] = {}
        for measured in chain.from_iterable(by_seed):
            rows.setdefault(_row(measured), []).append(measured)
        whys = {
            measure: with_settings(text, Config.of(settings))
            for measure, text in experiment.why.items()
        }
        explained = experiment.model_copy(update={"why": whys})
        cells += _leaving_cells(explained, column, rows, table, reason)
        if experiment.figure == "lines":
            lines += _leaving_lines(column, places, by_seed)
        folders += places
    return Findings(tuple(cells), tuple(lines), tuple(missing), **sources_of(folders))


def _leaving_lines(
    column: Column, places: Sequence[Path], by_seed: Sequence[Sequence[Outcome]]
) -> Iterator[FigureLine]:
    """Average each setting's accuracy per round, as it stood at the end, over the seeds.

    Settings whose run is another's have its line.
    """
    for same in zip(*by_seed, strict=True):
        if not all(measured.shared_with for measured in same):
            name = _row(same[0]) + (f", x={same[0].x}" if same[0].x else "")
            runs = [
                load(place / (measured.shared_with or measured.name))
                for place, measured in zip(places, same, strict=True)
            ]
            every = [utility_lines(run.history)[OVERALL] for run in runs]
            yield FigureLine(column.name, name, averaged(every))


def _row(outcome: Outcome) -> str:
    """Return the row of the paper's table that a setting belongs to."""
    k = outcome.k
    return NAMES.get(outcome.name, outcome.name) if k is None else f"k={k}"


def _leaving_cells(
    experiment: Experiment, column: Column, rows: ByRow, table: Table, reason: str
) -> Iterator[Cell]:
    names = rows or dict.fromkeys(
        [
            *(NAMES.get(baseline, baseline) for baseline in experiment.baselines),
            *(f"k={k}" for k in experiment.k),
        ],
        (),
    )
    for measure in experiment.measures:
        title, of = LEAVING_MEASURES[measure]
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
                values=tuple(of(measured) for measured in same if not measured.shared_with),
                printed=printed,
                why=experiment.why.get(measure, ""),
                reason=reason,
            )
