"""`covey run`, `covey resume` and `covey sweep`, and what they show meanwhile."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from importlib.resources import as_file, files
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

import covey
from covey.base.errors import ConfigError, RunError
from covey.base.history import History, RoundRow
from covey.cli.answer import JsonOption, short, tabled
from covey.cli.app import FAILED_CHECK, app, console, errors, stated, stoppable
from covey.components.built_ins import BASELINE, REFERENCES
from covey.config.rules import is_remote
from covey.config.settings import Config, load_config
from covey.config.unheeded import Unheeded, unheeded

if TYPE_CHECKING:
    from covey.build.run import BuiltRun
    from covey.runtime.answers import AnsweredRequest
    from covey.runtime.folder import RunFolder
    from covey.runtime.loop import Observer


def unused_settings(config: Config) -> list[dict[str, Any]]:
    """Return what `unused_settings` is in a command's answer."""
    return [as_answer(each) for each in unheeded(config)]


def as_answer(each: Unheeded) -> dict[str, Any]:
    """Return one such setting for a program."""
    return {"key": each.key, "value": each.value, "reason": each.reason}


def tell(found: Iterable[Unheeded]) -> None:
    """Say on standard error which settings do nothing, one line each."""
    for each in found:
        console.print(f"note: {each.told}", style="yellow", soft_wrap=True)


def unused_everywhere(configs: Iterable[Config]) -> tuple[Unheeded, ...]:
    """Return the settings that do nothing in any of several runs."""
    first, *others = (unheeded(config) for config in configs)
    keys = [{each.key for each in found} for found in others]
    return tuple(each for each in first if all(each.key in found for found in keys))


def diverged_in(histories: Mapping[str, History]) -> list[dict[str, Any]]:
    """Return which models of these runs, by name, are none: for `--json`."""
    from covey.report.attacks import diverged_models

    return [
        {"run": name, **each}
        for name, history in histories.items()
        for each in diverged_models(history)
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


log = logging.getLogger("covey.run")


@contextmanager
def shown(title: str) -> Generator[Observer]:
    """Show a run as it goes on: live on a terminal, else one line per round."""
    if console.quiet:
        yield _logged(lambda _: None)
        return
    began = time.monotonic()

    def seconds() -> float:
        return time.monotonic() - began

    if not console.is_terminal:
        yield _logged(_line_printer())
        return
    with Live(console=console, refresh_per_second=8) as live:
        first: list[int] = []

        def observe(history: History) -> None:
            first.append(len(history.rounds))
            played = len(history.rounds) - first[0]
            live.update(_panel(title, history, seconds() / played if played else None))

        yield _logged(observe)


def _logged(observe: Observer) -> Observer:
    """Log every round too, by number and sizes."""
    logged = 0

    def observe_and_log(history: History) -> None:
        nonlocal logged
        if len(history.rounds) > logged:
            row = history.rounds[-1]
            counts = ", ".join(map(str, row.clients))
            log.info(
                "round %d: %d clients took part, %s per cluster",
                row.round_index + 1,
                row.participants,
                counts,
            )
        logged = len(history.rounds)
        observe(history)

    return observe_and_log


def _line_printer() -> Callable[[History], None]:
    from covey.report.queries import round_line

    printed = 0

    def observe(history: History) -> None:
        nonlocal printed
        fresh = len(history.rounds) > printed
        printed = len(history.rounds)
        if fresh:
            sys.stderr.write(round_line(history) + "\n")

    return observe


def _panel(title: str, history: History, seconds_per_round: float | None) -> Group:
    from covey.report.attacks import diverged_sentences
    from covey.report.queries import CLUSTERS_SHOWN, budget_told, count_told

    if history.started is None or not history.rounds:
        return Group(Text(f"{title}: round 1 is under way"))
    row, total = history.rounds[-1], history.started.rounds
    done = len(history.rounds)
    left = "" if seconds_per_round is None else _left((total - done) * seconds_per_round)
    return Group(
        Text(f"{title}  round {done} of {total}{left}", style="bold"),
        ProgressBar(total=total, completed=done, width=60),
        _accuracy_table(row),
        _cluster_table(row),
        Text(
            f"{count_told(row.over)} clients are in a cluster whose "
            f"measured risk is above what they accept"
        ),
        *(Text(sentence, style="red") for sentence in diverged_sentences(history)[:CLUSTERS_SHOWN]),
        Text(budget_told(history)),
    )


def _accuracy_table(row: RoundRow) -> Table:
    from covey.report.queries import share_told, utility_of

    found = utility_of(row)
    table = Table(found.name, *found.by_group, box=None, pad_edge=False)
    by_group = [share_told(value) for value in found.by_group.values()]
    table.add_row(share_told(found.overall), *by_group)
    return table


def _cluster_table(row: RoundRow) -> Table:
    from covey.report.queries import CLUSTERS_SHOWN, risk_told

    table = Table("cluster", "clients", "measured risk", box=None, pad_edge=False)
    for j, (clients, risk) in enumerate(zip(row.clients, row.risks, strict=True)):
        if j < CLUSTERS_SHOWN:
            table.add_row(str(j), str(clients), risk_told(risk))
    if len(row.clients) > CLUSTERS_SHOWN:
        table.add_row("...", str(sum(row.clients[CLUSTERS_SHOWN:])), "")
    return table


def _left(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f", about {minutes} min {rest} s left" if minutes else f", about {rest} s left"


def submitted(home: Path | None, out: Path, overrides: Sequence[str] = ()) -> None:
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
    told = subprocess.run(  # noqa: S603 - the deployment's own command
        [str(home / "flwr.sh"), *words, f'out="{where}"'], stdout=sys.stderr, check=False
    )
    ended = (out / "config.toml").is_file() and covey.load(out).history.finished is not None
    if told.returncode or not ended:
        raise RunError(
            f"The run in {out} did not come to its end; what the server said stands above. "
            f"See `covey deploy status {home}`, and carry it on with `covey resume {out}`."
        )


SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override section.key; repeatable."),
]
ConfigArgument = Annotated[
    Path | None, typer.Argument(help="Settings in TOML; none: the embedded example.")
]
OutOption = Annotated[
    Path | None, typer.Option("--out", help="The run's new folder; default runs/NAME.")
]
BaselineOption = Annotated[
    bool, typer.Option("--with-baseline", help="Play FedAvg beside it, on the same data.")
]


@app.command()
def run(
    config: ConfigArgument = None,
    out: OutOption = None,
    overrides: SetOption = None,
    with_baseline: BaselineOption = False,
    as_json: JsonOption = False,
) -> None:
    """Play a federation and write its report."""
    from covey.build.run import build_run
    from covey.runtime.folder import RunFolder

    settings = configured(config, overrides or [])
    tell(unheeded(settings))
    began = time.monotonic()
    if config is not None and is_remote(settings):
        place = out or _free_name(settings)
        submitted(config.parent, place, overrides or [])
        _concluded(covey.load(place), None, time.monotonic() - began, as_json=as_json)
        return
    assembled = build_run(settings)
    fedavg = build_run(_as_fedavg(settings)) if with_baseline else None
    folder = RunFolder.create(out or _free_name(settings), settings)
    beside = folder.path / "baseline"  # made first: `covey resume` plays it as well
    inner = fedavg and RunFolder.create(beside, fedavg.config)
    with stoppable(folder.path):
        played(assembled, folder)
        if fedavg is not None and inner is not None:
            played(fedavg, inner)
    _concluded(covey.load(folder.path), assembled, time.monotonic() - began, as_json=as_json)


@app.command()
def resume(
    run: Annotated[Path, typer.Argument(help="The folder of a run that was started.")],
    as_json: JsonOption = False,
) -> None:
    """Carry a run on after it was stopped, to the result it would have had."""
    from covey.runtime.folder import RunFolder
    from covey.runtime.inputs import FederationMetadata
    from covey.runtime.session import open_or_create

    folder = RunFolder.existing(run)
    began = time.monotonic()
    if (roster := FederationMetadata.of(folder)) is not None:
        submitted(Path(roster.home) if roster.home else None, run)
        _concluded(covey.load(run), None, time.monotonic() - began, as_json=as_json)
        return
    result = covey.load(run)
    with stoppable(run):
        with shown(run.name) as observe:
            result.resume(observe, lambda done: errors.print(done.message, soft_wrap=True))
        baseline = run / "baseline"
        if (baseline / "config.toml").is_file():
            played(*open_or_create(baseline, folder.config()))
    _concluded(result, None, time.monotonic() - began, as_json=as_json)


def configured(path: Path | None, overrides: list[str]) -> Config:
    """Return the settings of a file, or of the embedded example."""
    if path is not None:
        return load_config(path, overrides)
    with as_file(files("covey") / "embedded.toml") as embedded:
        return load_config(embedded, overrides)


def played(assembled: BuiltRun, folder: RunFolder) -> tuple[AnsweredRequest, ...]:
    """Run to the end and show progress; return the answered requests."""
    from covey.runs.run import run_to_end

    with shown(folder.path.name) as observe:
        return run_to_end(assembled, folder, observe)


def _as_fedavg(settings: Config) -> Config:
    changed = settings.naming(method=BASELINE).model_dump()
    changed["ledger"]["url"] = ""  # a ledger holds one run
    return Config.of(changed)


def _free_name(settings: Config) -> Path:
    stem = f"{settings.data.name.replace(':', '-')}-{settings.method.name}"
    names = (stem if n == 1 else f"{stem}-{n}" for n in count(1))
    return next(path for name in names if not (path := Path("runs") / name).exists())


def _concluded(
    result: covey.Run, assembled: BuiltRun | None, seconds: float, *, as_json: bool
) -> None:
    from covey.runtime.folder import RunFolder

    page = result.report(population=assembled.population if assembled else None)
    folder = RunFolder.existing(result.folder)
    answer: dict[str, Any] = {
        **result.summary,
        "unused_settings": unused_settings(folder.config()),
        "seconds": round(seconds, 1),
        "report": str(page),
    }
    name, baseline = result.folder.name, result.folder / "baseline"
    has_baseline = (baseline / "config.toml").is_file()
    lines = [_headline(answer), *([_beside(result.folder)] if has_baseline else [])]
    stated(answer, "\n".join([*lines, f"report: {page}"]), as_json=as_json)
    beside = {f"{name}/baseline": covey.load(baseline).history} if has_baseline else {}
    fail_if_diverged({name: result.history}, beside)


def _beside(run: Path) -> str:
    """Return a run and its baseline as a table of two rows."""
    from covey.report.comparison import comparison
    from covey.runs.pages import reported

    rows = comparison([reported(run)])
    shown = [
        key
        for key, value in rows[0].items()
        if key.startswith(("method", "accuracy", "true_risk")) or key == "violations"
        if not key.endswith("standard_error") and value is not None
    ]
    heads = [key.replace("_", " ") for key in shown]
    return tabled(heads, [[short(row[key]) for key in shown] for row in rows])


def _headline(answer: dict[str, Any]) -> str:
    """Return the outcome in a few lines: no figure without what it rests on."""
    from covey.report.summary import by_attacks

    is_number = answer["squared_error"]["overall"] is not None
    name = "mean squared error" if is_number else "accuracy"
    accuracy = answer["squared_error" if is_number else "accuracy"]
    groups = "".join(f", {name} {v:.3f}" for name, v in accuracy["by_group"].items())
    overall = "unknown" if accuracy["overall"] is None else f"{accuracy['overall']:.3f}"
    lines = [f"{answer['method']}: {name} {overall}{groups} after {answer['rounds']} rounds"]
    for j, cluster in enumerate(answer["clusters"][:6]):
        lines.append(
            f"cluster {j}: {cluster['clients']} clients, "
            f"measured risk {_figure(cluster, 'risk', 'reason')}, "
            f"true risk {_figure(cluster, 'true_risk', 'true_risk_reason')}"
            f"{_extremes(cluster, 'true_risk_')}"
            f"{_stronger(cluster['strongest_attack'])}"
        )
    found = answer["violations"]
    if found["count"] is None:
        lines.append(f"violations: unknown ({found['reason']})")
    else:
        lines.append(
            f"violations: {found['count']} clients end above what they accept "
            f"({found['count_lower']} by the 95% lower bound){by_attacks(found)}"
        )
    for each in answer["guarantees"]:
        lines.append(
            f"no guarantee for a {each['unit']} ({each['relation']}): {each['reason']}"
            if each["epsilon"] is None
            else f"guarantee for a {each['unit']} ({each['relation']}): epsilon "
            f"{each['epsilon']:.2f} at delta {each['delta']:g}, against whoever "
            f"{each['adversary']}; the report says what it does not cover"
        )
    return "\n".join(lines)


def _stronger(found: dict[str, Any] | None) -> str:
    """Return an attack that says more than the loss threshold does."""
    from covey.report.attacks import LOSS

    if found is None or found["attack"] == LOSS:
        return ""
    mean = f", by {found['attack']} {found['risk']:.3f}±{found['standard_error']:.3f}"
    return mean + _extremes(found, "")


def _extremes(found: Mapping[str, Any], prefix: str) -> str:
    """Return what stands beside a mean over members."""
    worst, surely = found[f"{prefix}worst_client"], found[f"{prefix}tpr_at_1"]
    known = [
        *([] if worst is None else [f"worst client {worst:.3f}"]),
        *([] if surely is None else [f"TPR {surely:.3f} at 1% FPR"]),
    ]
    return f" ({', '.join(known)})" if known else ""


def _figure(cluster: dict[str, Any], key: str, reason: str) -> str:
    if cluster[key] is None:
        return f"unknown ({cluster[reason]})"
    return f"{cluster[key]:.3f}±{cluster[f'{key}_standard_error']:.3f}"


@app.command()
def sweep(
    config: Annotated[Path, typer.Argument(help="Settings in TOML.")],
    over: Annotated[list[str], typer.Option("--over", metavar="KEY=V1,V2,...", help="Repeatable.")],
    seeds: Annotated[int, typer.Option(min=1, help="Seeds 0 to N-1.")] = 1,
    overrides: SetOption = None,
    out: Annotated[Path | None, typer.Option("--out", help="Default: sweeps/NAME.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Play every combination with every seed, and compare them pair by pair.

    Runs that are on disk already are not played again; unfinished ones are resumed.
    Where a model diverges the other runs are played all the same; exit code 1.
    """
    root = out or Path("sweeps") / config.stem
    axes = [_axis(each) for each in over]

    def changed(pairs: Sequence[tuple[str, Any]]) -> Config:
        return configured(config, [*(overrides or []), *(f"{k}={v}" for k, v in pairs)])

    from covey.runs.sweeps import concluded_sweep, variants_of

    variants = variants_of(changed, axes, range(seeds))
    nowhere = unused_everywhere(variants.values())
    tell(nowhere)
    for index, (name, settings) in enumerate(variants.items(), start=1):
        _ensure(root / name, settings, f"{index}/{len(variants)} {name}")
    done = concluded_sweep(root, variants, [key for key, _ in axes])
    answer = {
        "runs": [str(root / name) for name in variants],
        "rows": list(done.compared),
        "means": list(done.means),
        "diverged": diverged_in(done.histories),
        "unused_settings": [as_answer(each) for each in nowhere],
        "report": str(done.page),
        "table": str(done.table),
    }
    told_files = f"report: {done.page}\ntable: {done.table}"
    stated(answer, f"{_text(answer)}{told_files}", as_json=as_json)
    fail_if_diverged(done.histories)


def _axis(text: str) -> tuple[str, list[str]]:
    key, equals, values = text.partition("=")
    if not equals or not values:
        raise ConfigError(
            f"--over takes section.key=v1,v2,..., found {text!r}. "
            f"Write for example --over method.name=fedavg,ifca."
        )
    return key.strip(), [value.strip() for value in values.split(",")]


def _ensure(path: Path, settings: Config, title: str) -> None:
    """Play a run unless it is there; a folder of another run is refused."""
    from covey.runs.sweeps import check_variant
    from covey.runtime.auditing import is_finished
    from covey.runtime.folder import RunFolder
    from covey.runtime.session import open_or_create

    check_variant(RunFolder(path), settings)
    if not is_finished(path):
        run, folder = open_or_create(path, settings)
        console.print(title, highlight=False)
        with stoppable(path, f"the same `covey sweep`, which resumes {path}"):
            played(run, folder)


HIDDEN = ("reason", "violations_unknown", "diverged")
METRICS = ("accuracy", "minority_accuracy", "violations")


def _text(answer: Mapping[str, Any]) -> str:
    """Return the runs and their means as two tables."""
    from covey.report.summary import spread

    rows = [{key: row[key] for key in row if key not in HIDDEN} for row in answer["rows"]]
    settings = [
        {"setting": each["setting"], "runs": each["runs"]}
        | {key: spread(each[key]) for key in METRICS}
        | {
            f"{key} - {method}": spread(each[f"minus_{method}"][key])
            for method in REFERENCES
            if each[f"minus_{method}"]
            for key in METRICS
        }
        for each in answer["means"]
    ]
    return f"{_table(rows)}\n\n{_table(settings)}\n"


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    return tabled(columns, ([short(row.get(key, "-")) for key in columns] for row in rows))
