"""`covey runs`: which runs there are, how they are, and what of them may go."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from covey import registry
from covey.cli.app import JsonOption, app, stated
from covey.cli.tables import tabled
from covey.errors import ConfigError

if TYPE_CHECKING:
    from covey.registry import Retention, RunEntry

__all__ = ["DEFAULT_ROOT", "RootsOption", "list_runs", "prune_runs", "show_run"]

DEFAULT_ROOT = "runs"
"""Where `covey run` puts runs."""

runs = typer.Typer(
    help="List the runs below some folders, show one, or delete old ones."
)
app.add_typer(runs, name="runs")

RootsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        help="Folders that runs lie below, or URLs of ledgers. Default: runs"
    ),
]
RootsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--root", help="A folder that runs lie below, or a ledger's URL. Default: runs"
    ),
]


@runs.command("list")
def list_runs(roots: RootsArgument = None, as_json: JsonOption = False) -> None:
    """List all runs: state, rounds, age, size, ledger head, open requests."""
    found = registry.found_runs(roots or [DEFAULT_ROOT])
    answer = {"runs": [each.answer() for each in found]}
    stated(answer, _list_text(found), as_json=as_json)


@runs.command("show")
def show_run(
    run: Annotated[str, typer.Argument(help="Its folder, or its name in the list.")],
    roots: RootsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one run; its whole ledger is verified for that."""
    places: list[str] = roots or ([DEFAULT_ROOT] if Path(DEFAULT_ROOT).is_dir() else [])
    told = registry.named_run(run, places).answer()
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
        typer.Option(
            "--states", help="States but the newest, and stored updates (the default)."
        ),
    ] = False,
    whole: Annotated[
        bool, typer.Option("--whole", help="The whole run, its ledger too.")
    ] = False,
    with_proofs: Annotated[
        bool, typer.Option("--with-proofs", help="Whole runs in which proofs lie, too.")
    ] = False,
    register: Annotated[
        Path | None,
        typer.Option(
            help="The folder of the register of requests. Default: `requests` in a root."
        ),
    ] = None,
    yes: Annotated[
        bool,
        typer.Option("--yes", help="Delete it. Without this, only say what would."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Delete states of old runs, or old runs; never what an open request needs.

    Without --yes nothing is deleted: it says what would go, how many bytes, and what
    could then no longer be answered.
    """
    if states and whole:
        raise ConfigError(
            "Retention takes --states or --whole, found both. A whole run has its states "
            "in it: say --whole alone."
        )
    entries = registry.found_runs(roots or [DEFAULT_ROOT])
    found = registry.retention(
        entries,
        age_of(older_than),
        "whole" if whole else "states",
        with_proofs=with_proofs,
        needed=_needed(register, roots or [DEFAULT_ROOT], entries),
    )
    done = registry.prune(found) if yes else ()
    told: dict[str, Any] = {
        "older_than": older_than,
        "deleted": [each.answer() for each in done],
        "found": [each.answer() for each in found],
        "size_bytes": sum(each.size_bytes for each in (done if yes else found)),
    }
    stated(told, _prune_text(found, done, yes=yes), as_json=as_json)


def _needed(
    register: Path | None, roots: list[str], entries: Sequence[RunEntry]
) -> dict[str, str]:
    """Return why open cases need runs: of the register that is named, or of all roots."""
    from covey.requests import needed_runs

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
        "unknown"
        if entry.rounds_played is None
        else f"{entry.rounds_played}/{planned}",
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


def _prune_text(
    found: Sequence[Retention], done: Sequence[Retention], *, yes: bool
) -> str:
    lines: list[str] = []
    for each in found:
        if each.kept:
            lines.append(f"stays: {each.entry.place}: {each.kept}")
            continue
        word = "would go" if not yes else "deleted" if each in done else "left as it is"
        lines.append(
            f"{word}: {each.entry.place}: {_what(each)}, {_bytes(each.size_bytes)}"
        )
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
