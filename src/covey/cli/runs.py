"""`covey run`, `covey resume` and `covey sweep`."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.resources import as_file, files
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import covey
from covey.base.errors import ConfigError, RunError
from covey.base.history import History
from covey.cli.answer import HIDDEN, INLINE, Answer, short, tabled
from covey.cli.app import FAILED_CHECK, app, console, errors, stoppable
from covey.cli.progress import shown
from covey.components.built_ins import BASELINE, REFERENCES

if TYPE_CHECKING:
    from covey.base.figure import RiskEstimate
    from covey.build.run import BuiltRun
    from covey.config.rules import Idle
    from covey.config.settings import Config
    from covey.report.summary import ClusterSummary, MetricSummary, Summary
    from covey.runtime.folder import RunFolder

SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override section.key; repeatable."),
]


@dataclass(frozen=True, slots=True)
class RunConcluded(Answer):
    """A run that was played: its summary, and what playing it took.

    Attributes:
        seconds: of this command.
        report: the page that was written.
        beside: the run and its baseline, as a table.
    """

    run: str
    summary: Summary = field(metadata=INLINE)
    ledger_head: str | None
    unused_settings: Sequence[Idle]
    seconds: float
    report: Path
    beside: str = field(metadata=HIDDEN)

    def lines(self) -> Iterator[str]:
        """Yield the outcome in a few lines: no figure without what it rests on."""
        from covey.report.summary import by_attacks

        found = self.summary
        is_number = found.squared_error.overall is not None
        name = "mean squared error" if is_number else "accuracy"
        quality = found.squared_error if is_number else found.accuracy
        groups = "".join(f", {group} {v:.3f}" for group, v in quality.by_group.items())
        overall = short(quality.overall)
        yield f"{found.method}: {name} {overall}{groups} after {found.rounds} rounds"
        for metric, measured in found.metrics.items():
            yield f"{metric}: {_metric_figures(measured)}"
        yield from map(_cluster_line, found.clusters[:6])
        violations = found.violations
        if violations.count is None:
            yield f"violations: unknown: {violations.reason}"
        else:
            yield (
                f"violations: {violations.count} clients end above what they accept "
                f"({violations.count_lower} by the 95% lower bound){by_attacks(violations)}"
            )
        for each in found.privacy.guarantees:
            unit = f"a {each.unit} ({each.relation})"
            if each.epsilon is None:
                yield f"no guarantee for {unit}: {each.reason}"
            else:
                yield (
                    f"guarantee for {unit}: epsilon {each.epsilon:.2f} at delta "
                    f"{each.delta:g}, against whoever {each.adversary}; the report "
                    f"says what it does not cover"
                )
        if self.beside:
            yield self.beside
        yield f"report: {self.report}"


def _metric_figures(measured: MetricSummary) -> str:
    groups = "".join(f", {group} {short(value)}" for group, value in measured.by_group.items())
    if measured.overall.value is None:
        return f"{measured.overall}{groups}"
    return (
        f"{measured.overall}{groups}; clients from {measured.lowest:.3f} to {measured.highest:.3f}"
    )


def _cluster_line(cluster: ClusterSummary) -> str:
    strongest, truth = cluster.strongest_attack, cluster.truth
    line = (
        f"cluster {cluster.cluster}: {cluster.clients} clients, measured risk "
        f"{cluster.measured.figure}, true risk {_with_extremes(truth)}"
    )
    if strongest is None or strongest == truth:
        return line
    return f"{line}, by {strongest.source} {_with_extremes(strongest)}"


def _with_extremes(estimate: RiskEstimate) -> str:
    """Return a risk with what its mean over members hides."""
    worst, surely = estimate.worst_client, estimate.tpr_at_1
    known = [
        *([] if worst is None else [f"worst client {worst:.3f}"]),
        *([] if surely is None else [f"TPR {surely:.3f} at 1% FPR"]),
    ]
    return f"{estimate.figure} ({', '.join(known)})" if known else str(estimate.figure)


@app.command()
def run(
    config: Annotated[
        Path | None, typer.Argument(help="Settings in TOML; none: the embedded example.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="The run's new folder; default runs/NAME.")
    ] = None,
    overrides: SetOption = None,
    with_baseline: Annotated[
        bool, typer.Option("--with-baseline", help="Play FedAvg beside it, on the same data.")
    ] = False,
) -> Iterator[RunConcluded]:
    """Play a federation and write its report."""
    from covey.build.run import build_run
    from covey.config.settings import idle_settings
    from covey.runtime.folder import RunFolder

    settings = _configured(config, overrides or [])
    _note(idle_settings(settings))
    began = time.monotonic()
    if config is not None and settings.engine.is_remote:
        place = out or _free_name(settings)
        _submit(config.parent, place, overrides or [])
        yield from _concluded(covey.load(place), None, began)
        return
    assembled = build_run(settings)
    fedavg = build_run(_as_fedavg(settings)) if with_baseline else None
    folder = RunFolder.create(out or _free_name(settings), settings)
    beside = folder.path / "baseline"  # made first: `covey resume` plays it as well
    inner = fedavg and RunFolder.create(beside, fedavg.config)
    with stoppable(folder.path):
        _play(assembled, folder)
        if fedavg is not None and inner is not None:
            _play(fedavg, inner)
    yield from _concluded(covey.load(folder.path), assembled, began)


@app.command()
def resume(
    run: Annotated[Path, typer.Argument(help="The folder of a run that was started.")],
) -> Iterator[RunConcluded]:
    """Carry a run on after it was stopped, to the result it would have had."""
    from covey.runtime.folder import RunFolder
    from covey.runtime.inputs import FederationMetadata
    from covey.runtime.session import open_or_create

    folder = RunFolder.existing(run)
    began = time.monotonic()
    if (roster := FederationMetadata.of(folder)) is not None:
        _submit(Path(roster.home) if roster.home else None, run)
        yield from _concluded(covey.load(run), None, began)
        return
    result = covey.load(run)
    with stoppable(run):
        with shown(run.name) as observe:
            result.resume(observe, lambda done: errors.print(done.message, soft_wrap=True))
        baseline = run / "baseline"
        if (baseline / "config.toml").is_file():
            _play(*open_or_create(baseline, folder.config()))
    yield from _concluded(result, None, began)


def _configured(path: Path | None, overrides: list[str]) -> Config:
    """Return the settings of a file, or of the embedded example."""
    from covey.config.settings import load_config

    if path is not None:
        return load_config(path, overrides)
    with as_file(files("covey") / "embedded.toml") as embedded:
        return load_config(embedded, overrides)


def _as_fedavg(settings: Config) -> Config:
    from covey.config.settings import Config

    changed = settings.naming(method=BASELINE).model_dump()
    changed["ledger"]["url"] = ""  # a ledger holds one run
    return Config.of(changed)


def _free_name(settings: Config) -> Path:
    stem = f"{settings.data.name.replace(':', '-')}-{settings.method.name}"
    names = (stem if n == 1 else f"{stem}-{n}" for n in count(1))
    return next(path for name in names if not (path := Path("runs") / name).exists())


def _note(unused: Iterable[Idle]) -> None:
    """Say on standard error which settings do nothing, one line each."""
    for each in unused:
        console.print(f"note: {each.sentence}", style="yellow", soft_wrap=True)


def _play(assembled: BuiltRun, folder: RunFolder) -> None:
    """Run to the end and show progress."""
    from covey.runs.run import run_to_end

    with shown(folder.path.name) as observe:
        run_to_end(assembled, folder, observe)


def _submit(home: Path | None, out: Path, overrides: Sequence[str] = ()) -> None:
    """Let a deployment's server play a run in the folder `out`; wait for its end.

    Raises:
        ConfigError: there is no deployment, or not with these settings.
        RunError: the run did not come to its end.
    """
    if home is None or not (home / "app" / "pyproject.toml").is_file():
        raise ConfigError(
            f"Clients on machines of their own are reached by the server of a deployment, "
            f"whose folder holds covey.toml and app/; found "
            f"{home or 'a run that a program started'}. Make one with `covey deploy "
            f"init CONFIG.toml --out DIR`, or let the program carry its run on."
        )
    if overrides:
        raise ConfigError(
            f"Every node of a federation must have the same settings, found --set "
            f"{overrides[0]}. Put it into covey.toml, here and on all nodes."
        )
    words = ["run", str(home / "app"), "covey", "--stream", "--run-config"]
    where = str(out.resolve()).replace('"', '\\"')
    done = subprocess.run(  # noqa: S603 - the deployment's own command
        [str(home / "flwr.sh"), *words, f'out="{where}"'], stdout=sys.stderr, check=False
    )
    ended = (out / "config.toml").is_file() and covey.load(out).history.finished is not None
    if done.returncode or not ended:
        raise RunError(
            f"The run in {out} did not come to its end; what the server said stands above. "
            f"See `covey deploy status {home}`, and carry it on with `covey resume {out}`."
        )


def _concluded(
    result: covey.Run, assembled: BuiltRun | None, began: float
) -> Iterator[RunConcluded]:
    """Write the report and yield the answer; fail then if a model diverged."""
    from covey.config.settings import idle_settings
    from covey.runtime.folder import RunFolder

    page = result.report(population=assembled.population if assembled else None)
    folder = RunFolder.existing(result.folder)
    unused = idle_settings(assembled.config if assembled else folder.config())
    seconds = round(time.monotonic() - began, 1)
    name, baseline = result.folder.name, result.folder / "baseline"
    if not (baseline / "config.toml").is_file():
        yield RunConcluded(
            str(result.folder), result.summary, result.ledger_head, unused, seconds, page, ""
        )
        fail_if_diverged({name: result.history})
        return
    table = _with_its_baseline(result.folder)
    yield RunConcluded(
        str(result.folder), result.summary, result.ledger_head, unused, seconds, page, table
    )
    beside = {f"{name}/baseline": covey.load(baseline).history}
    fail_if_diverged({name: result.history}, beside)


def _with_its_baseline(run: Path) -> str:
    """Return a run and its baseline as a table of two rows."""
    from covey.report.comparison import comparison
    from covey.runs.pages import reported

    rows = comparison([reported(run)])
    keys = [
        key
        for key, value in rows[0].items()
        if key.startswith(("method", "accuracy", "true_risk")) or key == "violations"
        if not key.endswith("standard_error") and value is not None
    ]
    heads = [key.replace("_", " ") for key in keys]
    return tabled(heads, [[short(row[key]) for key in keys] for row in rows])


def diverged_in(histories: Mapping[str, History]) -> list[dict[str, Any]]:
    """Return which models of these runs, by name, are none: for `--json`."""
    return [
        {"run": name, **asdict(each)}
        for name, history in histories.items()
        for _, each in sorted(history.diverged.items())
    ]


def fail_if_diverged(
    histories: Mapping[str, History], beside: Mapping[str, History] | None = None
) -> None:
    """Say on standard error which models diverged, and exit with 1; else do nothing.

    Args:
        histories: the runs, by name.
        beside: runs that they are compared with: of them it is only said.

    Raises:
        typer.Exit: a model of `histories` diverged.
    """
    from covey.report.attacks import diverged_sentences

    sentences = [
        f"{name}: {sentence}"
        for name, history in {**histories, **(beside or {})}.items()
        for sentence in diverged_sentences(history)
    ]
    for sentence in sentences:
        errors.print(sentence, style="red", soft_wrap=True)
    if sentences:
        errors.print(
            "Figures that rest on a model that diverged are unknown. Try a lower "
            "train.learning_rate or, where a model has hardly begun to learn, more rounds.",
            soft_wrap=True,
        )
    if diverged_in(histories):
        raise typer.Exit(FAILED_CHECK)


HIDDEN_COLUMNS = ("reason", "violations_unknown", "diverged")
METRICS = ("accuracy", "minority_accuracy", "violations")


@dataclass(frozen=True, slots=True)
class Swept(Answer):
    """A sweep: its runs, and settings side by side.

    Attributes:
        runs: folders.
        means: over seeds.
        unused_settings: that do nothing in any run.
        table: the CSV file.
    """

    runs: Sequence[Path]
    rows: Sequence[Mapping[str, Any]]
    means: Sequence[Mapping[str, Any]]
    diverged: Sequence[Mapping[str, Any]]
    unused_settings: Sequence[Idle]
    report: Path
    table: Path

    def lines(self) -> Iterator[str]:
        """Yield the runs and their means as two tables."""
        from covey.report.summary import spread

        yield _table([{k: row[k] for k in row if k not in HIDDEN_COLUMNS} for row in self.rows])
        yield ""
        yield _table(
            [
                {"setting": each["setting"], "runs": each["runs"]}
                | {key: spread(each[key]) for key in METRICS}
                | {
                    f"{key} - {method}": spread(each[f"minus_{method}"][key])
                    for method in REFERENCES
                    if each[f"minus_{method}"]
                    for key in METRICS
                }
                for each in self.means
            ]
        )
        yield f"report: {self.report}"
        yield f"table: {self.table}"


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    return tabled(columns, ([short(row.get(key, "-")) for key in columns] for row in rows))


@app.command()
def sweep(
    config: Annotated[Path, typer.Argument(help="Settings in TOML.")],
    over: Annotated[list[str], typer.Option("--over", metavar="KEY=V1,V2,...", help="Repeatable.")],
    seeds: Annotated[int, typer.Option(min=1, help="Seeds 0 to N-1.")] = 1,
    overrides: SetOption = None,
    out: Annotated[Path | None, typer.Option("--out", help="Default: sweeps/NAME.")] = None,
) -> Iterator[Swept]:
    """Play every combination with every seed, and compare them pair by pair.

    Runs that are on disk already are not played again; unfinished ones are resumed.
    Where a model diverges the other runs are played all the same; exit code 1.
    """
    from covey.config.settings import idle_settings, swept_settings
    from covey.runs.sweeps import check_variant, concluded_sweep, variants_of
    from covey.runtime.auditing import is_finished
    from covey.runtime.folder import RunFolder
    from covey.runtime.session import open_or_create

    axes = list(map(_axis, over))

    def changed(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        swept = [f"{key}={value}" for key, value in pairs]
        return swept_settings(config, overrides or [], swept)

    root = out or Path("sweeps") / config.stem
    variants = variants_of(changed, axes, range(seeds))
    first, *others = map(idle_settings, variants.values())
    keys = [{each.key for each in unused} for unused in others]
    nowhere = [each for each in first if all(each.key in known for known in keys)]
    _note(nowhere)
    for index, (name, settings) in enumerate(variants.items(), start=1):
        path = root / name
        check_variant(RunFolder(path), settings)
        if not is_finished(path):
            assembled, folder = open_or_create(path, settings)
            console.print(f"{index}/{len(variants)} {name}", highlight=False)
            with stoppable(path, f"the same `covey sweep`, which resumes {path}"):
                _play(assembled, folder)
    done = concluded_sweep(root, variants, [key for key, _ in axes])
    yield Swept(
        runs=[root / name for name in variants],
        rows=done.compared,
        means=done.means,
        diverged=diverged_in(done.histories),
        unused_settings=nowhere,
        report=done.page,
        table=done.table,
    )
    fail_if_diverged(done.histories)


def _axis(text: str) -> tuple[str, list[str]]:
    key, equals, values = text.partition("=")
    if not equals or not values:
        raise ConfigError(
            f"--over takes section.key=v1,v2,..., found {text!r}. "
            f"Write for example --over method.name=fedavg,ifca."
        )
    return key.strip(), [value.strip() for value in values.split(",")]
