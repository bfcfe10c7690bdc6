"""The commands by name: a command's module is imported when the command is wanted.

Help, completion and a mistyped name need only this table.
"""

from collections.abc import Sequence
from copy import copy
from importlib import import_module
from typing import Any, NamedTuple

import click
import typer.main
from typer.core import TyperCommand, TyperGroup

__all__ = ["COMMANDS", "LazyGroup", "Row"]


EVERYWHERE = frozenset({"quiet", "verbose", "log_file"})
"""Options of the whole, that may stand after a command's name as well."""


class Row(NamedTuple):
    """Where a command is defined, and the first line of its help."""

    module: str
    help: str


COMMANDS = {
    "audit": Row(
        "covey.cli.audit",
        "Attack every final cluster model, with its members against matched non-members.",
    ),
    "guarantee": Row(
        "covey.cli.guarantees", "Say what settings promise before a run is played."
    ),
    "report": Row(
        "covey.cli.inspect",
        "Write a run's report again, or one that compares several runs.",
    ),
    "export": Row(
        "covey.cli.inspect",
        "Write one cluster model's state dict as safetensors, and put it on record.",
    ),
    "data": Row(
        "covey.cli.datasets",
        "List the data files that covey can read, or check those that are there.",
    ),
    "forget": Row(
        "covey.cli.leaving",
        "Answer clients that ask to leave a run, and prove what was answered.",
    ),
    "explain": Row(
        "covey.cli.leaving",
        "Show what is held on a client, and where, before anything is erased.",
    ),
    "verify": Row(
        "covey.cli.verifying", "Check a proof offline; exit code 1 if a check fails."
    ),
    "run": Row("covey.cli.runs", "Play a federation and write its report."),
    "resume": Row(
        "covey.cli.runs",
        "Carry a run on after it was stopped, to the result it would have had.",
    ),
    "sweep": Row(
        "covey.cli.sweeps",
        "Play every combination with every seed, and compare them pair by pair.",
    ),
    "reproduce": Row(
        "covey.cli.reproducing",
        "Measure a table or figure of the papers anew, and write the page over them all.",
    ),
    "bench": Row(
        "covey.cli.benches",
        "Hold what covey measures to a truth that only a simulation knows.",
    ),
    "config": Row(
        "covey.cli.settings_commands",
        "Check a file of settings, describe them all, or write one to start from.",
    ),
    "deploy": Row(
        "covey.cli.deploying", "Prepare, check and watch a federation on Flower."
    ),
}


class Unloaded(TyperCommand):
    """A name and a line of help, until the command is wanted."""


class LazyGroup(TyperGroup):
    """A group whose commands are imported when they are wanted."""

    def __init__(
        self,
        *,
        commands: dict[str, click.Command] | Sequence[click.Command] | None = None,
        **settings: Any,  # noqa: ANN401 - Typer's own
    ) -> None:
        known = dict(commands) if isinstance(commands, dict) else {}
        listed = {
            name: known.pop(name, None) or Unloaded(name, help=row.help)
            for name, row in COMMANDS.items()
        }
        super().__init__(commands={**listed, **known}, **settings)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the arguments name, with its options."""
        name, command, rest = super().resolve_command(ctx, args)
        if isinstance(command, Unloaded):
            command = loaded(str(name))
        if command is not None:
            take_too([p for p in self.params if p.name in EVERYWHERE], command)
        return name, command, rest


def take_too(params: Sequence[click.Parameter], command: click.Command) -> None:
    """Let a command, and those below it, take its group's options in its own place."""
    known = {each.name for each in command.params}
    for param in params:
        if param.name not in known:
            option = copy(param)
            option.expose_value = False  # its callback does what is to be done
            command.params.append(option)
    if isinstance(command, click.Group):
        for each in command.commands.values():
            take_too(params, each)


def loaded(name: str) -> click.Command:
    """Import a command's module, which registers it with the app."""
    from covey.cli.app import app

    import_module(COMMANDS[name].module)
    group = typer.main.get_command(app)
    assert isinstance(group, LazyGroup)  # noqa: S101 - what the app was made with
    return group.commands[name]
