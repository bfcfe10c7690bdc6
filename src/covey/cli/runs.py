"""`covey run`, `resume`, `sweep`, `report`, `export` and `runs`."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from importlib.resources import as_file, files
from itertools import count, starmap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import covey
from covey.base.as_json import HIDDEN, INLINE, OPTIONAL
from covey.base.built_ins import BASELINE, REFERENCES
from covey.base.errors import ConfigError, UnfinishedError
from covey.base.names import FLOWERS_COMMAND
from covey.cli.answer import BAD, FAILED_CHECK, CommandResult, Line, fail_if, short, table_of
from covey.cli.commands import (
    PATH,
    CommandGroup,
    argument,
    command,
    trust_code_option,
    trust_servers_option,
)
from covey.cli.console import console, errors, stoppable

if TYPE_CHECKING:
    from covey.api.listing import RunEntry
    from covey.api.pruning import Retention
    from covey.base.figure import RiskEstimate
    from covey.base.history import History
    from covey.report.clients import GroupModel
    from covey.report.comparison import Compared
    from covey.report.summary import ClusterSummary, Summary
    from covey.settings.load import Config
    from covey.settings.rules import Idle

DEFAULT_ROOT = "runs"
"""Where `covey run` puts runs."""

set_option = click.option(
    "--set",
    "overrides",
    metavar="KEY=VALUE",
    multiple=True,
    help="Override section.key; repeatable.",
)
root_option = click.option(
    "--root",
    "roots",
    multiple=True,
    help="A folder that runs lie below, or a ledger's URL. Default: runs",
)


@dataclass(frozen=True, slots=True)
class RunConcluded(CommandResult):
    """A run that was played: its summary, and what playing it took.

    Attributes:
        seconds: of this command.
        report: the page that was written.
        compared: this run and FedAvg beside it, with `--with-baseline`.
    """

    run: str
    summary: Summary = field(metadata=INLINE)
    ledger_head: str | None
    unused_settings: Sequence[Idle]
    seconds: float
    report: Path
    compared: Sequence[Compared] | None = field(default=None, metadata=OPTIONAL)

    def lines(self) -> Iterator[Line]:
        """Yield the outcome in a few lines: no figure without what it rests on."""
        from covey.report.summary import describe_violations

        summary = self.summary
        is_number = summary.squared_error.overall is not None
        name = "mean squared error" if is_number else "accuracy"
        quality = summary.squared_error if is_number else summary.accuracy
        by = quality.reported or ""
        yield (
            f"{summary.method}: {name} {short(quality.overall)}{_by_group(quality.by_group)} "
            f"after {summary.rounds} rounds{by and f', reported by {by} clients, not measured'}"
        )
        for metric, one in summary.metrics.items():
            clients = f", from {short(one.lowest)} to {short(one.highest)}"
            over = f"; {one.over}{'' if one.lowest is None else clients}"
            yield f"{metric}: {one.overall}{_by_group(one.by_group)}{over}"
        if any(model.moved for model in summary.group_models.values()):
            yield from starmap(_group_model_line, summary.group_models.items())
        yield from map(_cluster_line, summary.clusters[:6])
        yield describe_violations(summary.violations)
        for guarantee in summary.privacy.guarantees:
            more = "" if guarantee.epsilon is None else "; the report says what it does not cover"
            yield guarantee.sentence + more
        if self.compared is not None:
            yield from ("", table_of(list(map(_comparison_row, self.compared))), "")
        yield f"report: {self.report}"


def _comparison_row(run: Compared) -> Mapping[str, str]:
    def cell(shown: str, figure: str) -> str:
        unknown = run.unknown[figure]
        return f"{shown} ({unknown} unknown)" if unknown and shown != "unknown" else shown

    risk = f"{run.risk} by {run.attack}" if run.attack else "unknown"
    return {
        "method": run.method,
        run.measure: cell(short(run.overall), "overall"),
        "minority": cell(short(run.minority), "minority"),
        "highest risk": cell(risk, "risk"),
        "violations": cell(short(run.violations), "violations"),
    }


def _by_group(values: Mapping[str, float | None]) -> str:
    return "".join(f", {group} {short(value)}" for group, value in values.items())


def _group_model_line(group: str, model: GroupModel) -> str:
    return (
        f"model of the {group}: {model.clients} clients, accuracy {short(model.accuracy)}; "
        f"{model.moved} of the {group} use another"
    )


def _cluster_line(cluster: ClusterSummary) -> str:
    strongest, truth = cluster.strongest_attack, cluster.truth
    line = (
        f"cluster {cluster.cluster}: {cluster.clients} clients, measured risk "
        f"{cluster.measured}, true risk {_with_extremes(truth)}"
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


@command()
@argument("config", type=PATH, required=False, help="Settings in TOML; none: the embedded example.")
@click.option("--out", type=PATH, help="The run's new folder; default runs/NAME.")
@set_option
@click.option("--with-baseline", is_flag=True, help="Play FedAvg beside it, on the same data.")
def run(
    config: Path | None, out: Path | None, overrides: Sequence[str], with_baseline: bool
) -> Iterator[RunConcluded]:
    """Play a federation and write its report."""
    from covey.api.parts import built_for
    from covey.runs.folder import RunFolder
    from covey.settings.load import Config, idle_settings, load_config

    with as_file(files("covey") / "embedded.toml") as embedded:
        settings = load_config(config or embedded, overrides)
    unused = idle_settings(settings)
    _note(unused)
    began = time.monotonic()
    if config is not None and settings.engine.is_remote:
        place = out or _free_name(settings)
        _submit(config.parent, place, overrides)
        yield from _concluded(covey.load(place), unused, began)
        return
    folder = RunFolder(out or _free_name(settings))
    parts, fedavg = built_for(folder, settings), None
    if with_baseline:
        changed = settings.naming(method=BASELINE).model_dump()
        changed["ledger"]["url"] = ""  # a ledger holds one run
        fedavg = built_for(folder, Config.of(changed))
    played = covey.Run.begin(folder.path, parts)
    # made before anything is played: `covey resume` plays it as well
    beside = fedavg and covey.Run.begin(played.folder / "baseline", fedavg)
    with stoppable(played.folder):
        _play(played)
        if beside is not None:
            _play(beside)
    yield from _concluded(played, unused, began)


@command()
@argument("run", type=PATH, help="The folder of a run that was started.")
@trust_code_option
@trust_servers_option
def resume(run: Path, trust_code: bool, trust_servers: bool) -> Iterator[RunConcluded]:
    """Continue a stopped run; the result is the same."""
    from covey.runs.folder import FederationMetadata, RunFolder
    from covey.settings.load import idle_settings

    folder = RunFolder.existing(run)
    unused, began = idle_settings(folder.config()), time.monotonic()
    result = covey.load(run, trust_code=trust_code, trust_servers=trust_servers)
    if (roster := FederationMetadata.of(folder)) is not None:
        home = Path(roster.home) if roster.home else None
        if home is not None:
            folder.check_script(home / FLOWERS_COMMAND, trust=trust_code)
        _submit(home, run)
        yield from _concluded(covey.load(run), unused, began)
        return
    with stoppable(run):
        _play(result)
        if ((baseline := run / "baseline") / "config.toml").is_file():
            _play(covey.load(baseline, trust_code=trust_code, trust_servers=trust_servers))
    yield from _concluded(result, unused, began)


def _free_name(settings: Config) -> Path:
    stem = f"{settings.data.name.replace(':', '-')}-{settings.method.name}"
    names = (stem if n == 1 else f"{stem}-{n}" for n in count(1))
    return next(path for name in names if not (path := Path("runs") / name).exists())


def _note(unused: Iterable[Idle]) -> None:
    """Print on standard error which settings do nothing, one line each."""
    for setting in unused:
        console.print(f"note: {setting.sentence}", style="yellow", soft_wrap=True)


def _play(run: covey.Run) -> None:
    """Run to the end, and show progress and what was answered."""
    from covey.cli.console import shown

    with shown(run.folder.name) as observe:
        run.resume(observe, lambda done: errors.print(done.message, soft_wrap=True))


def _submit(home: Path | None, out: Path, overrides: Sequence[str] = ()) -> None:
    """Let a deployment's server play a run in the folder `out`; wait for its end.

    Raises:
        ConfigError: there is no deployment, or not with these settings.
        UnfinishedError: the run did not come to its end.
    """
    from covey.runs.auditing import is_finished

    if home is None or not (home / "app" / "pyproject.toml").is_file():
        raise ConfigError(
            f"Clients on machines of their own are reached from a deployment's folder, with "
            f"covey.toml and app/, found {home or 'a run that a program started'}: make one with "
            f"`covey deploy init CONFIG.toml --out DIR`, or let the program carry its run on."
        )
    if overrides:
        raise ConfigError(
            f"All nodes must have covey.toml's settings, found --set {overrides[0]}: put it there."
        )
    words = ["run", str(home / "app"), "covey", "--stream", "--run-config"]
    where = str(out.resolve()).replace('"', '\\"')
    done = subprocess.run(  # noqa: S603 - the deployment's own command
        [str(home / FLOWERS_COMMAND), *words, f'out="{where}"'], stdout=sys.stderr, check=False
    )
    if done.returncode or not is_finished(out):
        raise UnfinishedError(
            f"The run in {out} must end, found the lines above: see `covey deploy check {home}`, "
            f"and {f'continue with `covey resume {out}`' if out.exists() else 'run it again'}."
        )


def _concluded(result: covey.Run, unused: Sequence[Idle], began: float) -> Iterator[RunConcluded]:
    """Write the report and yield the answer; fail then if nothing was trained, or diverged."""
    from covey.report.clients import describe_emptiness
    from covey.report.comparison import compared
    from covey.runs.folder import RunFolder

    page = result.report()
    baseline, name = result.folder / "baseline", result.folder.name
    beside: dict[str, History] = {}
    if (baseline / "config.toml").is_file():
        beside[f"{name}/baseline"] = covey.load(baseline).history
    both = [result.history, *beside.values()]
    yield RunConcluded(
        run=str(result.folder),
        summary=result.summary,
        ledger_head=result.ledger_head,
        unused_settings=unused,
        seconds=round(time.monotonic() - began, 1),
        report=page,
        compared=[compared(entry) for entry in both] if beside else None,
    )
    most = RunFolder(result.folder).config().stopping.empty_rounds
    if empty := describe_emptiness(result.history, most):
        errors.print(f"{name}: {empty}. The log says who was refused.", style=BAD, soft_wrap=True)
    fail_if(FAILED_CHECK if empty else 0)
    fail_if_diverged({name: result.history}, beside)


def diverged_in(histories: Mapping[str, History]) -> list[dict[str, Any]]:
    """Return which models of these runs, by name, are none: for `--json`."""
    return [
        {"run": name, **asdict(divergence)}
        for name, history in histories.items()
        for _, divergence in sorted(history.diverged.items())
    ]


def fail_if_diverged(
    histories: Mapping[str, History], beside: Mapping[str, History] | None = None
) -> None:
    """Print on standard error which models diverged, and exit with 1; else do nothing.

    Args:
        histories: the runs, by name.
        beside: runs that they are compared with: these fail nothing.

    Raises:
        click.exceptions.Exit: a model of `histories` diverged.
    """
    from covey.report.clients import diverged_sentences

    sentences = [
        f"{name}: {sentence}"
        for name, history in {**histories, **(beside or {})}.items()
        for sentence in diverged_sentences(history)
    ]
    for sentence in sentences:
        errors.print(sentence, style=BAD, soft_wrap=True)
    if sentences:
        errors.print(
            "Figures that rest on such a model are unknown. Try a lower train.learning_rate "
            "or, if a model has hardly begun to learn, more rounds.",
            soft_wrap=True,
        )
    fail_if(FAILED_CHECK if diverged_in(histories) else 0)


@dataclass(frozen=True, slots=True)
class Swept(CommandResult):
    """A sweep: its runs, and settings side by side.

    Attributes:
        runs: folders.
        means: over seeds.
        unused_settings: that do nothing in any run.
        table: the CSV file.
        plots: a figure over a swept setting, in its formats.
        unchanged: settings whose values all give the same figures.
    """

    runs: Sequence[Path]
    rows: Sequence[Mapping[str, Any]]
    means: Sequence[Mapping[str, Any]]
    diverged: Sequence[Mapping[str, Any]]
    unused_settings: Sequence[Idle]
    report: Path
    table: Path
    plots: Sequence[Path]
    unchanged: Sequence[str]

    def lines(self) -> Iterator[Line]:
        """Yield the runs and their means as two tables."""
        from covey.report.summary import spread

        metrics = ("accuracy", "minority_accuracy", "violations")
        yield table_of(self.rows, "reason", "diverged")
        yield ""
        yield table_of(
            [
                {"setting": mean["setting"], "runs": mean["runs"]}
                | {key: str(spread(mean[key])) for key in metrics}
                | {
                    f"{key} - {method}": str(spread(mean[f"minus_{method}"][key]))
                    for method in REFERENCES
                    if mean[f"minus_{method}"]
                    for key in metrics
                }
                for mean in self.means
            ]
        )
        for key in self.unchanged:
            yield f"equal: no figure of any run changes with {key}"
        yield f"report: {self.report}"
        yield f"table: {self.table}"
        yield from (f"plot: {path}" for path in self.plots)


@command()
@argument("config", type=PATH, help="Settings in TOML.")
@click.option("--over", metavar="KEY=V1,V2,...", multiple=True, required=True, help="Repeatable.")
@click.option("--seeds", type=click.IntRange(min=1), default=1, help="Seeds 0 to N-1.")
@click.option("--plot", metavar="FIGURE:KEY", help="As PDF, PNG, CSV and LaTeX.")
@set_option
@click.option("--out", type=PATH, help="Default: sweeps/NAME.")
def sweep(
    config: Path,
    over: Sequence[str],
    seeds: int,
    plot: str | None,
    overrides: Sequence[str],
    out: Path | None,
) -> Iterator[Swept]:
    """Play every combination with every seed, and compare them pair by pair.

    Runs that are on disk already are not played again; unfinished ones are resumed.
    Where a model diverges the other runs are played all the same; exit code 1.
    """
    from covey.api.sweeps import check_plot, check_variant, concluded_sweep, variants_of, write_plot
    from covey.runs.auditing import is_finished
    from covey.runs.folder import RunFolder
    from covey.settings.load import idle_settings, swept_settings

    axes = list(map(_axis, over))
    swept_keys = [key for key, _ in axes]

    def changed(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        swept = [f"{key}={value}" for key, value in pairs]
        return swept_settings(config, overrides, swept)

    root = out or Path("sweeps") / config.stem
    variants = variants_of(changed, axes, range(seeds))
    plotted = check_plot(plot, swept_keys, variants) if plot else None
    first, *others = map(idle_settings, variants.values())
    keys = [{setting.key for setting in unused} for unused in others]
    nowhere = [setting for setting in first if all(setting.key in known for known in keys)]
    _note(nowhere)
    for index, (name, settings) in enumerate(variants.items(), start=1):
        path = root / name
        check_variant(RunFolder(path), settings)
        if not is_finished(path):
            run = covey.Run.of(path, settings)
            console.print(f"{index}/{len(variants)} {name}", highlight=False)
            with stoppable(path, f"the same `covey sweep`, which resumes {path}"):
                _play(run)
    done = concluded_sweep(root, variants, swept_keys)
    yield Swept(
        runs=[root / name for name in variants],
        rows=done.compared,
        means=done.means,
        diverged=diverged_in(done.histories),
        unused_settings=nowhere,
        report=done.page,
        table=done.table,
        plots=write_plot(done, *plotted, swept_keys) if plotted else (),
        unchanged=done.unchanged,
    )
    fail_if_diverged(done.histories)


def _axis(text: str) -> tuple[str, list[str]]:
    key, equals, values = text.partition("=")
    if not equals or not values:
        raise ConfigError(
            f"--over must be section.key=v1,v2,..., found {text!r}: write method.name=fedavg,ifca."
        )
    return key.strip(), [value.strip() for value in values.split(",")]


@dataclass(frozen=True, slots=True)
class ReportWritten:
    """A page that was written again, over one run or several."""

    report: Path
    diverged: Sequence[Mapping[str, Any]]


@command()
@argument("runs", type=PATH, nargs=-1, required=True, help="Folders of runs.")
@click.option("--out", type=PATH, help="The HTML file.")
@trust_servers_option
def report(runs: Sequence[Path], out: Path | None, trust_servers: bool) -> Iterator[ReportWritten]:
    """Write a run's report again, or one that compares several runs.

    Exit code 1 if a model of theirs diverged: the report says which.
    """
    from covey.api.pages import page_over

    held = {str(run): covey.load(run, trust_servers=trust_servers) for run in runs}
    one = held[str(runs[0])]
    page = one.report(out) if len(runs) == 1 else page_over(runs, out)
    histories = {name: run.history for name, run in held.items()}
    yield ReportWritten(page, diverged_in(histories))
    fail_if_diverged(histories)


@dataclass(frozen=True, slots=True)
class Exported:
    """A model that was written out of a run.

    Attributes:
        sha256: of the file.
        recipient: as it stands on record.
    """

    file: Path
    cluster: int | None
    sha256: str
    recipient: str | None


@command()
@argument("run", type=PATH, help="The folder of a run.")
@click.option("--client", help="The model this client uses.")
@click.option("--cluster", type=int, help="This cluster's model.")
@click.option("--out", type=PATH, help="The file to write; default in RUN/exports.")
@click.option(
    "--recipient",
    default="",
    help="For whom. Kept on record: covey forget says who is to be notified, and proofs name it.",
)
@click.option(
    "--round",
    "after",
    default="",
    help="The model as it was after this round, counted from 1, or `best`: after the best by "
    "checkpoints.best, or by accuracy.",
)
def export(
    run: Path, client: str | None, cluster: int | None, out: Path | None, recipient: str, after: str
) -> Exported:
    """Write one cluster model's state dict as safetensors, and put it on record."""
    from covey.runs.folder import RunFolder

    if after not in ("", "best") and not (after.isdecimal() and int(after) > 0):
        raise ConfigError(
            f"--round must be a round, from 1, or 'best', found {after!r}: write --round 7."
        )
    held = covey.load(run)
    folder = RunFolder(run)
    t = int(after) - 1 if after.isdecimal() else None
    if after == "best":
        figure = folder.config().checkpoints.best
        t = held.best("accuracy" if figure == "none" else figure).round
    copy = held.export(cluster, client, out, recipient, t)
    return Exported(copy.location(folder), copy.cluster, copy.sha256, copy.recipient or None)


runs = CommandGroup("runs", help="List the runs below some folders, show one, or delete old ones.")


@dataclass(frozen=True, slots=True)
class RunsListed(CommandResult):
    """All runs below some folders."""

    runs: Sequence[RunEntry]

    def lines(self) -> Iterator[Line]:
        """Yield a row per run, and what is to be known of some."""
        yield table_of(list(map(_row, self.runs))) if self.runs else "no runs were found"
        for run in self.runs:
            ended_early = run.state == "finished" and run.reason
            if ended_early or run.state in ("damaged", "unreadable"):
                yield f"{run.name}: {run.reason}"


def _row(run: RunEntry) -> Mapping[str, object]:
    from rich.filesize import decimal as size

    from covey.report.summary import age

    planned = "?" if run.rounds_planned is None else str(run.rounds_planned)
    played = "unknown" if run.rounds_played is None else f"{run.rounds_played}/{planned}"
    return {
        "run": run.name,
        "state": run.state,
        "method": run.method or "unknown",
        "rounds": played,
        "last event": "none" if run.age_seconds is None else age(run.age_seconds),
        "clients": short(run.clients),
        "size": size(run.size_bytes),
        "head": run.ledger_head or "none",
        "open requests": short(run.open_requests),
        "guarantees": len(run.guarantees) or "none",
    }


roots_argument = argument(
    "roots", nargs=-1, help="Folders that runs lie below, or URLs of ledgers. Default: runs"
)


@runs.command("list")
@roots_argument
def list_runs(roots: Sequence[str]) -> RunsListed:
    """List all runs: state, rounds, age, size, ledger head, open requests."""
    from covey.api.listing import find_runs

    return RunsListed(find_runs(roots or [DEFAULT_ROOT]))


@runs.command("show")
@argument("run", help="Its folder, or its name in the list.")
@root_option
def show_run(run: str, roots: Sequence[str]) -> RunEntry:
    """Show one run; its whole ledger is verified for that."""
    from covey.api.listing import named_run

    return named_run(run, roots or ([DEFAULT_ROOT] if Path(DEFAULT_ROOT).is_dir() else []))


@dataclass(frozen=True, slots=True)
class Pruned(CommandResult):
    """What old runs could spare, and what was deleted.

    Attributes:
        deleted: empty without `--yes`.
        candidates: what could go, or why it stays.
        size_bytes: of what was deleted, or would be.
    """

    older_than: str
    deleted: Sequence[Retention]
    candidates: Sequence[Retention]
    size_bytes: int
    yes: bool = field(metadata=HIDDEN)

    def lines(self) -> Iterator[Line]:
        """Yield what goes or stays of each run, and what is then lost."""
        from rich.filesize import decimal as size

        for candidate in self.candidates:
            if candidate.kept:
                yield f"stays: {candidate.run}: {candidate.kept}"
                continue
            done = "deleted" if candidate in self.deleted else "left as it is"
            what = f"{len(candidate.paths)} files of states and updates"
            if candidate.what == "whole":
                what = "the whole run, its ledger too"
            action = done if self.yes else "would go"
            yield f"{action}: {candidate.run}: {what}, {size(candidate.size_bytes)}"
            yield from (f"  then: {sentence}" for sentence in candidate.lost)
        action = "deleted" if self.yes else "would go; say --yes to delete it"
        yield f"{size(self.size_bytes)} in all {action}"


@runs.command("prune")
@roots_argument
@click.option(
    "--older-than",
    default="90d",
    show_default=True,
    help="How long ago the last event was: 90d, 12w, 36h.",
)
@click.option(
    "--whole",
    is_flag=True,
    help="The whole run, its ledger too; else states but the newest, and stored updates.",
)
@click.option("--with-proofs", is_flag=True, help="Whole runs in which proofs lie, too.")
@click.option("--yes", is_flag=True, help="Delete it. Without this, only say what would.")
def prune_runs(
    roots: Sequence[str], older_than: str, whole: bool, with_proofs: bool, yes: bool
) -> Pruned:
    """Delete states of old runs, or old runs; never one in which a request waits.

    Without --yes nothing is deleted: it says what would go, how many bytes, and what
    could then no longer be answered.
    """
    from covey.api.listing import find_runs
    from covey.api.pruning import prune, retention

    units = {"h": "hours", "d": "days", "w": "weeks"}
    match = re.fullmatch(r"(\d{1,6})([hdw])", older_than.strip())
    if match is None:
        raise ConfigError(
            f"--older-than must be hours, days or weeks, found {older_than!r}: write 36h, 90d, 12w."
        )
    below = roots or [DEFAULT_ROOT]
    entries, age = find_runs(below), timedelta(**{units[match[2]]: int(match[1])})
    what = "whole" if whole else "states"
    candidates = retention(entries, age, what, with_proofs=with_proofs)
    deleted = prune(candidates) if yes else ()
    size = sum(entry.size_bytes for entry in (deleted if yes else candidates))
    return Pruned(older_than, deleted, candidates, size, yes)
