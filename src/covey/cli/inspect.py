"""`covey report`, `export`, `runs`, `doctor` and `serve`."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import covey
from covey.base.errors import ConfigError
from covey.cli.answer import HIDDEN, INLINE, Answer, Commands, JsonOption, short, tabled
from covey.cli.app import FAILED_CHECK, app, errors, stated

if TYPE_CHECKING:
    from covey.desk.pruning import Retention
    from covey.desk.runs import RunEntry
    from covey.runtime.damage import Damage


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs.")],
    out: Annotated[Path | None, typer.Option("--out", help="The HTML file.")] = None,
    sign: Annotated[
        bool, typer.Option("--sign", help="Sign its figures, and the page's hash, beside it.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Write a run's report again, or one that compares several runs.

    Exit code 1 if a model of theirs diverged: the report says which.
    """
    from covey.cli.runs import diverged_in, fail_if_diverged
    from covey.runs.pages import page_over

    if sign and len(runs) > 1:
        raise ConfigError(
            f"--sign signs the report of one run, found {len(runs)} runs. Name one of them."
        )
    held = {str(run): covey.load(run) for run in runs}
    one = held[str(runs[0])]
    page = one.report(out, sign=sign) if len(runs) == 1 else page_over(runs, out)
    told = {name: run.history for name, run in held.items()}
    answer: dict[str, Any] = {"report": str(page), "diverged": diverged_in(told)}
    text = f"report: {page}"
    if sign:
        answer["signed"] = str(page.with_suffix(".json"))
        text += f"\nsigned: {answer['signed']}"
    stated(answer, text, as_json=as_json)
    fail_if_diverged(told)


@dataclass(frozen=True, slots=True)
class Exported(Answer):
    """A model that was written out of a run.

    Attributes:
        sha256: of the file.
        recipient: as it stands on record.
    """

    file: Path
    cluster: int | None
    sha256: str
    recipient: str | None

    def lines(self) -> Iterator[str]:
        """Yield which model is where."""
        yield f"cluster {self.cluster} -> {self.file}"


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
) -> Exported:
    """Write one cluster model's state dict as safetensors, and put it on record."""
    from covey.runtime.folder import RunFolder

    if (client is None) == (cluster is None):
        raise ConfigError(
            "Export takes either --client NAME or --cluster J, and exactly one of them."
        )
    held = covey.load(run)
    folder = RunFolder(run)
    if after == "best":
        figure = folder.config().checkpoints.best
        t = held.best("accuracy" if figure == "none" else figure).round
    elif after and not (after.isdecimal() and int(after) > 0):
        raise ConfigError(
            f"--round takes a round, counted from 1, or 'best', found {after!r}. Write for "
            f"example --round 7."
        )
    else:
        t = int(after) - 1 if after else None
    copy = held.export(cluster, client, out, recipient, t)
    return Exported(copy.location(folder), copy.cluster, copy.sha256, copy.recipient or None)


DEFAULT_ROOT = "runs"
"""Where `covey run` puts runs."""

runs = Commands(help="List the runs below some folders, show one, or delete old ones.")
app.add_typer(runs, name="runs")

RootsArgument = Annotated[
    list[str] | None,
    typer.Argument(help="Folders that runs lie below, or URLs of ledgers. Default: runs"),
]
RootsOption = Annotated[
    list[str] | None,
    typer.Option("--root", help="A folder that runs lie below, or a ledger's URL. Default: runs"),
]


HEADS = (
    *("run", "state", "method", "rounds", "last event", "clients", "size", "head"),
    *("open requests", "guarantees"),
)


@dataclass(frozen=True, slots=True)
class RunsListed(Answer):
    """All runs below some folders."""

    runs: Sequence[RunEntry]

    def lines(self) -> Iterator[str]:
        """Yield a row per run, and what is to be known of some."""
        yield tabled(HEADS, map(_row, self.runs)) if self.runs else "no runs were found"
        for run in self.runs:
            ended_early = run.state == "finished" and run.reason
            if ended_early or run.state in ("damaged", "unreadable"):
                yield f"{run.name}: {run.reason}"


def _row(run: RunEntry) -> tuple[str, ...]:
    from covey.report.summary import age, size

    planned = "?" if run.rounds_planned is None else str(run.rounds_planned)
    return (
        run.name,
        run.state,
        run.method or "unknown",
        "unknown" if run.rounds_played is None else f"{run.rounds_played}/{planned}",
        "none" if run.age_seconds is None else age(run.age_seconds),
        short(run.clients),
        size(run.size_bytes),
        run.ledger_head or "none",
        short(run.open_requests),
        str(len(run.guarantees)) if run.guarantees else "none",
    )


@runs.command("list")
def list_runs(roots: RootsArgument = None) -> RunsListed:
    """List all runs: state, rounds, age, size, ledger head, open requests."""
    from covey.desk.runs import found_runs

    return RunsListed(found_runs(roots or [DEFAULT_ROOT]))


@dataclass(frozen=True, slots=True)
class RunShown(Answer):
    """One run, as the list has it."""

    run: RunEntry = field(metadata=INLINE)


@runs.command("show")
def show_run(
    run: Annotated[str, typer.Argument(help="Its folder, or its name in the list.")],
    roots: RootsOption = None,
) -> RunShown:
    """Show one run; its whole ledger is verified for that."""
    from covey.desk.runs import named_run

    below: list[str] = roots or ([DEFAULT_ROOT] if Path(DEFAULT_ROOT).is_dir() else [])
    return RunShown(named_run(run, below))


@dataclass(frozen=True, slots=True)
class Pruned(Answer):
    """What old runs could spare, and what was deleted.

    Attributes:
        deleted: empty without `--yes`.
        found: what could go, or why it stays.
        size_bytes: of what was deleted, or would be.
    """

    older_than: str
    deleted: Sequence[Retention]
    found: Sequence[Retention]
    size_bytes: int
    yes: bool = field(metadata=HIDDEN)

    def lines(self) -> Iterator[str]:
        """Yield what goes or stays of each run, and what is then lost."""
        from covey.report.summary import size

        for each in self.found:
            if each.kept:
                yield f"stays: {each.run}: {each.kept}"
                continue
            done = "deleted" if each in self.deleted else "left as it is"
            what = f"{len(each.paths)} files of states and updates"
            if each.what == "whole":
                what = "the whole run, its ledger too"
            went = done if self.yes else "would go"
            yield f"{went}: {each.run}: {what}, {size(each.size_bytes)}"
            yield from (f"  then: {sentence}" for sentence in each.lost)
        went = "deleted" if self.yes else "would go; say --yes to delete it"
        yield f"{size(self.size_bytes)} in all {went}"


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
) -> Pruned:
    """Delete states of old runs, or old runs; never what an open request needs.

    Without --yes nothing is deleted: it says what would go, how many bytes, and what
    could then no longer be answered.
    """
    from covey.desk.pruning import prune, retention
    from covey.desk.runs import found_runs
    from covey.desk.search import needed_runs

    if states and whole:
        raise ConfigError(
            "Retention takes --states or --whole, found both. A whole run has its states "
            "in it: say --whole alone."
        )
    below = roots or [DEFAULT_ROOT]
    entries, age = found_runs(below), _age_of(older_than)
    needed: dict[str, str] = {}
    for place in [register] if register else [Path(each) / "requests" for each in below]:
        needed |= needed_runs(place, below, entries)
    what = "whole" if whole else "states"
    found = retention(entries, age, what, with_proofs=with_proofs, needed=needed)
    deleted = prune(found) if yes else ()
    size = sum(each.size_bytes for each in (deleted if yes else found))
    return Pruned(older_than, deleted, found, size, yes)


def _age_of(text: str) -> timedelta:
    units = {"h": "hours", "d": "days", "w": "weeks"}
    found = re.fullmatch(r"(\d{1,6})([hdw])", text.strip())
    if found is None:
        raise ConfigError(
            f"--older-than takes a whole number of hours, days or weeks, such as 90d, "
            f"found {text!r}. Write 36h, 90d or 12w."
        )
    return timedelta(**{units[found[2]]: int(found[1])})


@dataclass(frozen=True, slots=True)
class Doctored(Answer):
    """What is damaged in a run, and what was repaired."""

    damaged: Sequence[Damage]
    repaired: Sequence[Damage]

    @property
    def exit_code(self) -> int:
        """Return 1 if something is damaged."""
        return FAILED_CHECK if self.damaged else 0

    def lines(self) -> Iterator[str]:
        """Yield what was repaired, and what is damaged, why, and what can be done."""
        yield from (f"repaired  {each.what}: {each.path}" for each in self.repaired)
        for each in self.damaged:
            yield f"DAMAGED   {each.what}: {each.path}"
            yield from (f"          {sentence}" for sentence in (each.found, each.recovery))
        if not self.damaged and not self.repaired:
            yield "nothing is damaged"


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
) -> Doctored:
    """Say what is damaged in a run, and what it can be recovered from.

    Exit code 1 if something is damaged that was not repaired.
    """
    from covey.runs.sweeps import examine, repair

    found = repair(run) if mend else examine(run)
    return Doctored(found.damages, found.repaired)


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
