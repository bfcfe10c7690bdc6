"""`covey report`, `export`, `dossier`, `runs`, `doctor` and `serve`."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

import covey
from covey.base.errors import ConfigError
from covey.cli.answer import JsonOption
from covey.cli.app import FAILED_CHECK, app, errors, stated

if TYPE_CHECKING:
    from covey.desk.pruning import Retention
    from covey.desk.runs import RunEntry
    from covey.runs.sweeps import Examination


WIDTH = 240
"""Characters: no cell wraps, whatever the terminal; the terminal itself may."""


def tabled(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return rows of words under their column names."""
    table = Table(*columns, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*map(Text, row))
    text = StringIO()
    Console(file=text, width=WIDTH, markup=False, emoji=False).print(table)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def short(value: object) -> str:
    """Return a cell: three digits of a float, "unknown" for None."""
    if value is None:
        return "unknown"
    if isinstance(value, float):
        return f"{value:.3f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs.")],
    out: Annotated[Path | None, typer.Option("--out", help="The HTML file.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Write a run's report again, or one that compares several runs.

    Exit code 1 if a model of theirs diverged: the report says which.
    """
    from covey.cli.runs import diverged_in, fail_if_diverged
    from covey.runs.pages import page_over

    held = {str(run): covey.load(run) for run in runs}
    page = held[str(runs[0])].report(out) if len(runs) == 1 else page_over(runs, out)
    told = {name: run.history for name, run in held.items()}
    answer = {"report": str(page), "diverged": diverged_in(told)}
    stated(answer, f"report: {page}", as_json=as_json)
    fail_if_diverged(told)


@app.command()
def export(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    client: Annotated[str | None, typer.Option(help="The model this client uses.")] = None,
    cluster: Annotated[int | None, typer.Option(help="This cluster's model.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="The file to write; default in RUN/exports.")
    ] = None,
    recipient: Annotated[
        str,
        typer.Option(
            help="For whom. Kept on record: covey forget says who is to be notified, and "
            "proofs name it."
        ),
    ] = "",
    after: Annotated[
        str,
        typer.Option(
            "--round",
            help="The model as it was after this round, counted from 1, or `best`: after "
            "the best by checkpoints.best, or by accuracy.",
        ),
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Write one cluster model's state dict as safetensors, and put it on record."""
    from covey.runtime.folder import RunFolder

    if (client is None) == (cluster is None):
        raise ConfigError(
            "Export takes either --client NAME or --cluster J, and exactly one of them."
        )
    held = covey.load(run)
    copy = held.export(cluster, client, out, recipient, _round_of(held, after))
    path = copy.location(RunFolder(run))
    answer = {
        "file": str(path),
        "cluster": copy.cluster,
        "sha256": copy.sha256,
        "recipient": copy.recipient or None,
    }
    stated(answer, f"cluster {copy.cluster} -> {path}", as_json=as_json)


def _round_of(run: covey.Run, text: str) -> int | None:
    """Return the round that is meant; None: the newest."""
    from covey.runtime.folder import RunFolder

    if text == "best":
        figure = RunFolder.existing(run.folder).config().checkpoints.best
        return run.best("accuracy" if figure == "none" else figure).round
    if text and not (text.isdecimal() and int(text) > 0):
        raise ConfigError(
            f"--round takes a round, counted from 1, or 'best', found {text!r}. Write for "
            f"example --round 7."
        )
    return int(text) - 1 if text else None


@app.command()
def dossier(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    out: Annotated[
        Path | None, typer.Option(help="A new folder, or NAME.zip; default in RUN/dossiers.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write a signed folder: what a run's models may give away, and on what evidence.

    For who must answer to an authority: privacy cards, lineage, and Annex IV's
    headings. Check one with covey verify.
    """
    written = covey.load(run).dossier(out)
    stated({"dossier": str(written)}, f"dossier: {written}", as_json=as_json)


DEFAULT_ROOT = "runs"
"""Where `covey run` puts runs."""

runs = typer.Typer(help="List the runs below some folders, show one, or delete old ones.")
app.add_typer(runs, name="runs")

RootsArgument = Annotated[
    list[str] | None,
    typer.Argument(help="Folders that runs lie below, or URLs of ledgers. Default: runs"),
]
RootsOption = Annotated[
    list[str] | None,
    typer.Option("--root", help="A folder that runs lie below, or a ledger's URL. Default: runs"),
]


@runs.command("list")
def list_runs(roots: RootsArgument = None, as_json: JsonOption = False) -> None:
    """List all runs: state, rounds, age, size, ledger head, open requests."""
    from covey.desk.runs import found_runs

    found = found_runs(roots or [DEFAULT_ROOT])
    answer = {"runs": [each.answer() for each in found]}
    stated(answer, _list_text(found), as_json=as_json)


@runs.command("show")
def show_run(
    run: Annotated[str, typer.Argument(help="Its folder, or its name in the list.")],
    roots: RootsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one run; its whole ledger is verified for that."""
    from covey.desk.runs import named_run

    places: list[str] = roots or ([DEFAULT_ROOT] if Path(DEFAULT_ROOT).is_dir() else [])
    told = named_run(run, places).answer()
    lines = (f"{key.replace('_', ' ')}: {_brief(value)}" for key, value in told.items())
    stated(told, "\n".join(lines), as_json=as_json)


@runs.command("prune")
def prune_runs(
    roots: RootsArgument = None,
    older_than: Annotated[
        str, typer.Option(help="How long ago the last event was: 90d, 12w, 36h.")
    ] = "90d",
    states: Annotated[
        bool,
        typer.Option("--states", help="States but the newest, and stored updates (the default)."),
    ] = False,
    whole: Annotated[bool, typer.Option("--whole", help="The whole run, its ledger too.")] = False,
    with_proofs: Annotated[
        bool, typer.Option("--with-proofs", help="Whole runs in which proofs lie, too.")
    ] = False,
    register: Annotated[
        Path | None,
        typer.Option(help="The folder of the register of requests. Default: `requests` in a root."),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Delete it. Without this, only say what would.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Delete states of old runs, or old runs; never what an open request needs.

    Without --yes nothing is deleted: it says what would go, how many bytes, and what
    could then no longer be answered.
    """
    from covey.desk.pruning import prune, retention
    from covey.desk.runs import found_runs

    if states and whole:
        raise ConfigError(
            "Retention takes --states or --whole, found both. A whole run has its states "
            "in it: say --whole alone."
        )
    entries = found_runs(roots or [DEFAULT_ROOT])
    found = retention(
        entries,
        age_of(older_than),
        "whole" if whole else "states",
        with_proofs=with_proofs,
        needed=_needed(register, roots or [DEFAULT_ROOT], entries),
    )
    done = prune(found) if yes else ()
    told: dict[str, Any] = {
        "older_than": older_than,
        "deleted": [each.answer() for each in done],
        "found": [each.answer() for each in found],
        "size_bytes": sum(each.size_bytes for each in (done if yes else found)),
    }
    stated(told, _prune_text(found, done, yes=yes), as_json=as_json)


def _needed(register: Path | None, roots: list[str], entries: Sequence[RunEntry]) -> dict[str, str]:
    """Return why open cases need runs: of the register that is named, or of all roots."""
    from covey.desk.intake import needed_runs

    places = [register] if register else [Path(each) / "requests" for each in roots]
    needed: dict[str, str] = {}
    for place in places:
        needed |= needed_runs(place, roots, entries)
    return needed


def age_of(text: str) -> timedelta:
    """Return how long `90d`, `12w` or `36h` is.

    Raises:
        ConfigError: it is none of these.
    """
    found = re.fullmatch(r"(\d{1,6})([hdw])", text.strip())
    if found is None:
        raise ConfigError(
            f"--older-than takes a whole number of hours, days or weeks, such as 90d, "
            f"found {text!r}. Write 36h, 90d or 12w."
        )
    names = {"h": "hours", "d": "days", "w": "weeks"}
    return timedelta(**{names[found[2]]: int(found[1])})


def _list_text(found: Sequence[RunEntry]) -> str:
    heads = (
        "run",
        "state",
        "method",
        "rounds",
        "last event",
        "clients",
        "size",
        "head",
        "open requests",
        "guarantees",
    )
    rows = [_row(each) for each in found]
    notes = [f"{each.name}: {each.reason}" for each in found if _has_note(each)]
    return "\n".join([tabled(heads, rows), *notes]) if rows else "no runs were found"


def _row(entry: RunEntry) -> tuple[str, ...]:
    planned = "?" if entry.rounds_planned is None else str(entry.rounds_planned)
    return (
        entry.name,
        entry.state,
        entry.method or "unknown",
        "unknown" if entry.rounds_played is None else f"{entry.rounds_played}/{planned}",
        "none" if entry.age_seconds is None else f"{_duration(entry.age_seconds)} ago",
        _known(entry.clients),
        _bytes(entry.size_bytes),
        entry.ledger_head or "none",
        _known(entry.open_requests),
        str(len(entry.guarantees)) if entry.guarantees else "none",
    )


def _has_note(entry: RunEntry) -> bool:
    """Say whether a run is damaged, or ended early."""
    return _is_faulty(entry) or (entry.state == "finished" and bool(entry.reason))


def _is_faulty(entry: RunEntry) -> bool:
    return entry.state in ("damaged", "unreadable")


def _prune_text(found: Sequence[Retention], done: Sequence[Retention], *, yes: bool) -> str:
    lines: list[str] = []
    for each in found:
        if each.kept:
            lines.append(f"stays: {each.entry.place}: {each.kept}")
            continue
        word = "would go" if not yes else "deleted" if each in done else "left as it is"
        lines.append(f"{word}: {each.entry.place}: {_what(each)}, {_bytes(each.size_bytes)}")
        lines += (f"  then: {sentence}" for sentence in each.lost)
    total = sum(each.size_bytes for each in (done if yes else found))
    went = "deleted" if yes else "would go; say --yes to delete it"
    return "\n".join([*lines, f"{_bytes(total)} in all {went}"])


def _what(found: Retention) -> str:
    if found.what == "whole":
        return "the whole run, its ledger too"
    return f"{len(found.paths)} files of states and updates"


def _known(number: int | None) -> str:
    return "unknown" if number is None else f"{number:,}"


def _brief(value: object) -> str:
    if value is None or value == "":
        return "none"
    if isinstance(value, list):
        return "; ".join(map(str, value)) or "none"
    counted = isinstance(value, int) and not isinstance(value, bool)
    return f"{value:,}" if counted else str(value)


def _bytes(size: int) -> str:
    scaled, unit = float(size), "B"
    for larger in ("kB", "MB", "GB"):
        if scaled < 1000:
            break
        scaled, unit = scaled / 1000, larger
    return f"{size} B" if unit == "B" else f"{scaled:.1f} {unit}"


def _duration(seconds: float) -> str:
    for length, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


@app.command()
def doctor(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    mend: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="Recover what can be: delete damaged states and play their rounds again.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Say what is damaged in a run, and what it can be recovered from.

    Exit code 1 if something is damaged that was not repaired.
    """
    from covey.runs.sweeps import examine, repair

    found = repair(run) if mend else examine(run)
    answer = {
        "damaged": [each.answer() for each in found.damages],
        "repaired": [each.answer() for each in found.repaired],
    }
    stated(answer, _text(found), as_json=as_json)
    if found.damages:
        raise typer.Exit(FAILED_CHECK)


def _text(found: Examination) -> str:
    repaired = (f"repaired  {each.what}: {each.path}" for each in found.repaired)
    damaged = (
        f"DAMAGED   {each.what}: {each.path}\n          {each.found}\n          {each.recovery}"
        for each in found.damages
    )
    lines = [*repaired, *damaged]
    return "\n".join(lines) if lines else "nothing is damaged"


PORT = 8765
NICENESS = 5
"""Who reads must not slow down who plays."""
NEEDED = ("starlette", "uvicorn")


@app.command()
def serve(
    roots: Annotated[
        list[Path] | None, typer.Argument(help="Folders that runs lie below. Default: runs")
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="On this machine only; 0: any that is free.")
    ] = PORT,
    write: Annotated[
        bool,
        typer.Option("--write", help="Allow forms: requests are taken in, answered and closed."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show runs in a browser on this machine, live; nothing is written without --write."""
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise ConfigError(
            f"Pages in a browser need {' and '.join(missing)}, and covey was installed "
            f'without. Install them: pip install "covey[serve]".'
        )
    from covey.web.app import serve as served

    with suppress(OSError, AttributeError):  # Windows has no niceness
        os.nice(NICENESS)
    server = served(roots or [Path(DEFAULT_ROOT)], port, _tell_next, write=write)
    told = {"link": server.link}
    stated(told, f"Open {server.link}", as_json=as_json)
    sys.stdout.flush()
    errors.print("It opens one browser; Ctrl-C ends it.", soft_wrap=True)
    if write:
        errors.print(
            "Who opens it can answer requests to leave, and that cannot be taken back.",
            soft_wrap=True,
        )
    server.run()


def _tell_next(link: str) -> None:
    errors.print(f"A browser was let in. For another one: {link}", soft_wrap=True)
