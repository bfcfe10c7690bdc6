"""A run as it goes on: live on a terminal, else a line per round."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from covey.cli.app import console

if TYPE_CHECKING:
    from covey.base.history import History, RoundRow
    from covey.runtime.session import Observer

log = logging.getLogger("covey.run")


@contextmanager
def shown(title: str) -> Generator[Observer]:
    """Show a run as it goes on, and log every round."""
    began, known, first = time.monotonic(), 0, -1
    is_live = console.is_terminal and not console.quiet
    live = Live(console=console, refresh_per_second=8)

    def observe(history: History) -> None:
        nonlocal known, first
        is_new, known = len(history.rounds) > known, len(history.rounds)
        if is_new:
            _log_round(history)
        if is_live:
            first = known if first < 0 else first
            played = known - first
            seconds = (time.monotonic() - began) / played if played else None
            live.update(_panel(title, history, seconds))
        elif is_new and not console.quiet:
            from covey.report.queries import round_line

            sys.stderr.write(round_line(history) + "\n")

    with live if is_live else nullcontext():
        yield observe


def _log_round(history: History) -> None:
    row = history.rounds[-1]
    log.info(
        "round %d: %d clients took part, %s per cluster",
        row.round_index + 1,
        row.participants,
        ", ".join(map(str, row.clients)),
    )


def _panel(title: str, history: History, seconds_per_round: float | None) -> Group:
    from covey.report.clients import diverged_sentences
    from covey.report.queries import CLUSTERS_SHOWN, describe_budget

    if history.started is None or not history.rounds:
        return Group(Text(f"{title}: round 1 is under way"))
    row, total = history.rounds[-1], history.started.rounds
    done = len(history.rounds)
    left = ""
    if seconds_per_round is not None:
        minutes, seconds = divmod(round((total - done) * seconds_per_round), 60)
        left = f", about {f'{minutes} min ' if minutes else ''}{seconds} s left"
    return Group(
        Text(f"{title}  round {done} of {total}{left}", style="bold"),
        ProgressBar(total=total, completed=done, width=60),
        _accuracy_table(row),
        _cluster_table(row),
        Text(
            f"{'unknown' if row.over is None else row.over} clients are in a cluster whose "
            f"measured risk is above what they accept"
        ),
        *(Text(sentence, style="red") for sentence in diverged_sentences(history)[:CLUSTERS_SHOWN]),
        Text(describe_budget(history)),
    )


def _accuracy_table(row: RoundRow) -> Table:
    from covey.base.figure import number
    from covey.report.queries import utility_of

    utility = utility_of(row)
    table = Table(utility.name, *utility.by_group, box=None, pad_edge=False)
    by_group = [number(value) for value in utility.by_group.values()]
    table.add_row(number(utility.overall), *by_group)
    return table


def _cluster_table(row: RoundRow) -> Table:
    from covey.report.queries import CLUSTERS_SHOWN

    table = Table("cluster", "clients", "measured risk", box=None, pad_edge=False)
    for j, (clients, risk) in enumerate(zip(row.clients, row.risks, strict=True)):
        if j < CLUSTERS_SHOWN:
            table.add_row(str(j), str(clients), str(risk))
    if len(row.clients) > CLUSTERS_SHOWN:
        table.add_row("...", str(sum(row.clients[CLUSTERS_SHOWN:])), "")
    return table
