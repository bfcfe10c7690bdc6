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
from covey.risk import RiskEstimate

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
            sys.stderr.write(_line(history) + "\n")

    return observe


def _line(history: History) -> str:
    row, rounds = history.rounds[-1], history.started.rounds if history.started else 0
    parts = [
        f"round {row.round_index + 1}/{rounds}",
        f"accuracy {_share(row.accuracy)}",
    ]
    parts += [f"{name} {_share(v)}" for name, v in row.accuracy_by_group.items()]
    parts.append("risk " + " ".join(_risk(risk) for risk in row.risks[:SHOWN]))
    parts.append(f"over threshold {_count(row.over)}")
    parts += report.diverged_sentences(history)[:SHOWN]
    if sentence := _budget(history):
        parts.append(sentence)
    return "  ".join(parts)


SHOWN = 6
"""Clusters in the display; local training has one per client."""


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
            f"{_count(row.over)} clients are in a cluster whose measured risk is above "
            f"what they accept"
        ),
        *(
            Text(sentence, style="red")
            for sentence in report.diverged_sentences(history)[:SHOWN]
        ),
        Text(_budget(history)),
    )


def _budget(history: History) -> str:
    """Say how many more clients can be denied; nothing where updates are not hidden."""
    budget = report.budget_of(history)["budget"]
    if budget is None or budget["denials_left"] is None:
        return ""
    return (
        f"denials left {budget['denials_left']}, the next request forces a replay with "
        f"probability {budget['next_forces_rollback']:.2f}"
    )


def _accuracy_table(row: RoundRow) -> Table:
    table = Table("accuracy", *row.accuracy_by_group, box=None, pad_edge=False)
    by_group = [_share(value) for value in row.accuracy_by_group.values()]
    table.add_row(_share(row.accuracy), *by_group)
    return table


def _cluster_table(row: RoundRow) -> Table:
    table = Table("cluster", "clients", "measured risk", box=None, pad_edge=False)
    for j, (clients, risk) in enumerate(zip(row.clients, row.risks, strict=True)):
        if j < SHOWN:
            table.add_row(str(j), str(clients), _risk(risk))
    if len(row.clients) > SHOWN:
        table.add_row("...", str(sum(row.clients[SHOWN:])), "")
    return table


def _share(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3f}"


def _count(value: int | None) -> str:
    return "unknown" if value is None else str(value)


def _risk(found: RiskEstimate | None) -> str:
    if found is None:
        return "unknown"
    return f"{found.risk:.3f}±{found.standard_error:.3f}"


def _left(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return (
        f", about {minutes} min {rest} s left" if minutes else f", about {rest} s left"
    )
