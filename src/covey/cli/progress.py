"""A run as it goes on: a line per round, above a bar where somebody looks."""

from __future__ import annotations

import logging
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from covey.cli.console import console

if TYPE_CHECKING:
    from covey.base.history import History
    from covey.runs.session import Observer

log = logging.getLogger("covey.run")


@contextmanager
def shown(title: str) -> Generator[Observer]:
    """Show a run as it goes on, and log every round."""
    name = title.replace("{", "{{").replace("}", "}}")
    what = TextColumn(f"{name} {{task.description}}", markup=False)
    columns = what, BarColumn(), MofNCompleteColumn()
    is_live = console.is_terminal and not console.quiet
    bar = Progress(*columns, TimeRemainingColumn(), console=console, disable=not is_live)
    known, task = 0, bar.add_task("", total=None)

    def observe(history: History) -> None:
        nonlocal known
        if history.preparing:
            done, total = history.preparing
            bar.update(task, description="features", completed=done, total=total)
            return
        is_new, known = len(history.rounds) > known, len(history.rounds)
        bar.update(
            task, description="", completed=known, total=history.started and history.started.rounds
        )
        if is_new:
            from covey.report.queries import round_line

            row, line = history.rounds[-1], round_line(history)
            if not console.quiet:
                print(line, file=sys.stderr)  # above the bar, if there is one
            clients = ", ".join(map(str, row.clients))
            number, participants = row.round_index + 1, row.participants
            log.info(
                "round %d: %d clients took part, %s per cluster", number, participants, clients
            )

    with bar:
        yield observe
