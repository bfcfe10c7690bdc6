"""What a running federation looks like: a live table, or a line per round."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from covey import report, runtime
from covey.cli.consoles import console
from covey.history import History, RoundRow

__all__ = ["console", "shown"]

log = logging.getLogger("covey.run")


@contextmanager
def shown(title: str) -> Generator[runtime.Observer]:
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


def _logged(observe: runtime.Observer) -> runtime.Observer:
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
    printed = 0

    def observe(history: History) -> None:
        nonlocal printed
        fresh = len(history.rounds) > printed
        printed = len(history.rounds)
        if fresh:
            sys.stderr.write(report.round_line(history) + "\n")

    return observe


def _panel(title: str, history: History, seconds_per_round: float | None) -> Group:
    if history.started is None or not history.rounds:
        return Group(Text(f"{title}: round 1 is under way"))
    row, total = history.rounds[-1], history.started.rounds
    done = len(history.rounds)
    left = (
        "" if seconds_per_round is None else _left((total - done) * seconds_per_round)
    )
    return Group(
        Text(f"{title}  round {done} of {total}{left}", style="bold"),
        ProgressBar(total=total, completed=done, width=60),
        _accuracy_table(row),
        _cluster_table(row),
        Text(
            f"{report.count_told(row.over)} clients are in a cluster whose "
            f"measured risk is above what they accept"
        ),
        *(
            Text(sentence, style="red")
            for sentence in report.diverged_sentences(history)[: report.CLUSTERS_SHOWN]
        ),
        Text(report.budget_told(history)),
    )


def _accuracy_table(row: RoundRow) -> Table:
    found = report.utility_of(row)
    table = Table(found.name, *found.by_group, box=None, pad_edge=False)
    by_group = [report.share_told(value) for value in found.by_group.values()]
    table.add_row(report.share_told(found.overall), *by_group)
    return table


def _cluster_table(row: RoundRow) -> Table:
    table = Table("cluster", "clients", "measured risk", box=None, pad_edge=False)
    for j, (clients, risk) in enumerate(zip(row.clients, row.risks, strict=True)):
        if j < report.CLUSTERS_SHOWN:
            table.add_row(str(j), str(clients), report.risk_told(risk))
    if len(row.clients) > report.CLUSTERS_SHOWN:
        table.add_row("...", str(sum(row.clients[report.CLUSTERS_SHOWN :])), "")
    return table


def _left(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return (
        f", about {minutes} min {rest} s left" if minutes else f", about {rest} s left"
    )
