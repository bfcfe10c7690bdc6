"""`covey run` and `covey resume`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from importlib.resources import as_file, files
from itertools import count
from pathlib import Path
from typing import Annotated, Any

import typer

import covey
from covey import build, runtime
from covey.cli.app import JsonOption, app, stated
from covey.cli.consoles import errors
from covey.cli.federated import submitted
from covey.cli.progress import shown
from covey.cli.stopping import stoppable
from covey.cli.tables import short, tabled
from covey.cli.unused import tell, unused_settings
from covey.components.built_ins import BASELINE
from covey.config import Config, is_remote, load_config, unheeded

__all__ = ["SetOption", "configured", "played", "resume", "run"]

SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Override section.key; repeatable."
    ),
]
ConfigArgument = Annotated[
    Path | None, typer.Argument(help="Settings in TOML; none: the embedded example.")
]
OutOption = Annotated[
    Path | None, typer.Option("--out", help="The run's new folder; default runs/NAME.")
]
BaselineOption = Annotated[
    bool,
    typer.Option("--with-baseline", help="Play FedAvg beside it, on the same data."),
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
    settings = configured(config, overrides or [])
    tell(unheeded(settings))
    began = time.monotonic()
    if config is not None and is_remote(settings):
        place = out or _free_name(settings)
        submitted(config.parent, place, overrides or [])
        _concluded(covey.load(place), None, time.monotonic() - began, as_json=as_json)
        return
    assembled = build.build_run(settings)
    fedavg = build.build_run(_as_fedavg(settings)) if with_baseline else None
    folder = runtime.RunFolder.create(out or _free_name(settings), settings)
    beside = folder.path / "baseline"  # made first: `covey resume` plays it as well
    inner = fedavg and runtime.RunFolder.create(beside, fedavg.config)
    with stoppable(folder.path):
        played(assembled, folder)
        if fedavg is not None and inner is not None:
            played(fedavg, inner)
    _concluded(
        covey.load(folder.path), assembled, time.monotonic() - began, as_json=as_json
    )


@app.command()
def resume(
    run: Annotated[Path, typer.Argument(help="The folder of a run that was started.")],
    as_json: JsonOption = False,
) -> None:
    """Carry a run on after it was stopped, to the result it would have had."""
    folder = runtime.RunFolder.existing(run)
    began = time.monotonic()
    if (roster := runtime.FederationMetadata.of(folder)) is not None:
        submitted(Path(roster.home) if roster.home else None, run)
        _concluded(covey.load(run), None, time.monotonic() - began, as_json=as_json)
        return
    result = covey.load(run)
    with stoppable(run):
        with shown(run.name) as observe:
            result.resume(
                observe, lambda done: errors.print(done.message, soft_wrap=True)
            )
        baseline = run / "baseline"
        if (baseline / "config.toml").is_file():
            played(*runtime.open_or_create(baseline, folder.config()))
    _concluded(result, None, time.monotonic() - began, as_json=as_json)


def configured(path: Path | None, overrides: list[str]) -> Config:
    """Return the settings of a file, or of the embedded example."""
    if path is not None:
        return load_config(path, overrides)
    with as_file(files("covey") / "embedded.toml") as embedded:
        return load_config(embedded, overrides)


def played(
    assembled: build.BuiltRun, folder: runtime.RunFolder
) -> tuple[runtime.AnsweredRequest, ...]:
    """Run to the end and show progress; return the answered requests."""
    from covey.runs import run_to_end

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
    result: covey.Run,
    assembled: build.BuiltRun | None,
    seconds: float,
    *,
    as_json: bool,
) -> None:
    from covey.cli.divergence import fail_if_diverged

    page = result.report(population=assembled.population if assembled else None)
    folder = runtime.RunFolder.existing(result.folder)
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
    from covey.report import comparison
    from covey.runs import reported

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
    from covey.report import by_attacks

    is_number = answer["squared_error"]["overall"] is not None
    name = "mean squared error" if is_number else "accuracy"
    accuracy = answer["squared_error" if is_number else "accuracy"]
    groups = "".join(f", {name} {v:.3f}" for name, v in accuracy["by_group"].items())
    overall = "unknown" if accuracy["overall"] is None else f"{accuracy['overall']:.3f}"
    lines = [
        f"{answer['method']}: {name} {overall}{groups} after {answer['rounds']} rounds"
    ]
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
    from covey.report import LOSS

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
