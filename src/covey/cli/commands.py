"""The commands by name: a command's module is imported when the command is wanted.

Help, completion and a mistyped name need only this table, and the rows that installed
packages add to it: entry points of the group `covey.commands`, each a `Row`.
"""

from collections.abc import Mapping, Sequence
from copy import copy
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import typer.main
from typer.core import TyperCommand, TyperGroup

from covey.base.errors import ConfigError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


GROUP = "covey.commands"

EVERYWHERE = frozenset({"quiet", "verbose", "log_file"})
"""Options of the whole, that may stand after a command's name as well."""


class Row(NamedTuple):
    """Where a command is defined, and the first line of its help.

    Importing the module adds the command to `covey.cli.app`.
    """

    module: str
    help: str


COMMANDS = {
    "audit": Row(
        "covey.cli.audit",
        "Attack every final cluster model, with its members against matched non-members.",
    ),
    "guarantee": Row("covey.cli.guarantees", "Say what settings promise before a run is played."),
    "report": Row(
        "covey.cli.inspect", "Write a run's report again, or one that compares several runs."
    ),
    "export": Row(
        "covey.cli.inspect",
        "Write one cluster model's state dict as safetensors, and put it on record.",
    ),
    "data": Row(
        "covey.cli.tools", "List the data files that covey can read, or check those that are there."
    ),
    "forget": Row(
        "covey.cli.leaving", "Answer clients that ask to leave a run, and prove what was answered."
    ),
    "join": Row(
        "covey.cli.leaving",
        "Let a client join a run whose models are solved from sums over clients.",
    ),
    "update": Row(
        "covey.cli.leaving",
        "Replace a client's records, or add to them, and solve the models again.",
    ),
    "requests": Row(
        "covey.cli.requests", "Answer people who ask to leave, over all runs that know them."
    ),
    "explain": Row(
        "covey.cli.leaving", "Show what is held on a client, and where, before anything is erased."
    ),
    "records": Row(
        "covey.cli.audit",
        "List a client's most exposed records, on the machine where their losses lie.",
    ),
    "verify": Row(
        "covey.cli.ledger",
        "Check a proof or a signed report offline; exit code 1 if a check fails.",
    ),
    "head": Row("covey.cli.ledger", "Sign the head of a run's ledger, for a witness."),
    "witness": Row(
        "covey.cli.ledger",
        "Cosign the head of a ledger that grew, and refuse one that was rewritten.",
    ),
    "keys": Row(
        "covey.cli.ledger", "List the keys that sign proofs, replace the one in use, or revoke one."
    ),
    "doctor": Row(
        "covey.cli.inspect", "Say what is damaged in a run, and what it can be recovered from."
    ),
    "run": Row("covey.cli.runs", "Play a federation and write its report."),
    "resume": Row(
        "covey.cli.runs", "Carry a run on after it was stopped, to the result it would have had."
    ),
    "runs": Row(
        "covey.cli.inspect", "List the runs below some folders, show one, or delete old ones."
    ),
    "sweep": Row(
        "covey.cli.runs", "Play every combination with every seed, and compare them pair by pair."
    ),
    "config": Row(
        "covey.cli.tools",
        "Check a file of settings, describe them all, or write one to start from.",
    ),
    "serve": Row(
        "covey.cli.inspect",
        "Show runs in a browser on this machine, live; nothing is written without --write.",
    ),
    "deploy": Row("covey.cli.tools", "Prepare, check and watch a federation on Flower."),
}


@cache
def installed() -> Mapping[str, Row | ConfigError]:
    """Return the rows of other packages' commands; why one cannot be had, in its place.

    What covey has itself is not replaced.
    """
    from importlib.metadata import entry_points  # only where it is wanted

    points = sorted(entry_points(group=GROUP))
    return {p.name: _row(p) for p in points if p.name not in COMMANDS}


def _row(point: "EntryPoint") -> Row | ConfigError:
    try:
        row = point.load()
    except Exception as error:
        why = f"importing it failed: {error}"
    else:
        if isinstance(row, Row):
            return row
        why = f"that is a {type(row).__name__} and not a covey.cli.commands.Row"
    return ConfigError(
        f"The command {point.name!r} should be at {point.value}, but {why}. Install the "
        f"package again that brings it, or uninstall it."
    )


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

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of covey's own commands, then those of other packages."""
        own = super().list_commands(ctx)
        return [*own, *(name for name in installed() if name not in self.commands)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, or what stands for it until it is wanted."""
        own = super().get_command(ctx, cmd_name)
        if own is not None or cmd_name not in installed():
            return own
        row = installed()[cmd_name]
        return Unloaded(cmd_name, help=row.help if isinstance(row, Row) else str(row))

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
    """Import a command's module, which registers it with the app.

    Raises:
        ConfigError: the package that brings it cannot be imported.
    """
    from covey.cli.app import app

    row = COMMANDS.get(name) or installed()[name]
    if isinstance(row, ConfigError):
        raise row
    import_module(row.module)
    group = typer.main.get_command(app)
    assert isinstance(group, LazyGroup)  # noqa: S101 - what the app was made with
    return group.commands[name]
