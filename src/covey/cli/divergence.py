"""How a command ends after a run whose models diverged: it says so, and fails."""

from collections.abc import Mapping
from typing import Any

import typer

from covey import report
from covey.cli.app import FAILED_CHECK
from covey.cli.consoles import errors
from covey.history import History

__all__ = ["diverged_in", "fail_if_diverged"]


def diverged_in(histories: Mapping[str, History]) -> list[dict[str, Any]]:
    """Return which models of these runs, by name, are none: for `--json`."""
    return [
        {"run": name, **each}
        for name, history in histories.items()
        for each in report.diverged_models(history)
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
    sentences = [
        f"{name}: {sentence}"
        for name, history in {**histories, **(beside or {})}.items()
        for sentence in report.diverged_sentences(history)
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
