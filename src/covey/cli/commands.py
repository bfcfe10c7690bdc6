"""All commands: covey's own, and those of other packages, imported when one is wanted.

Another package adds one by an entry point of the group `covey.commands`, a `Row`: help,
completion and a mistyped name need no more of it.
"""

from collections.abc import Mapping, Sequence
from copy import copy
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

import click
import typer.main
from typer.core import TyperCommand, TyperGroup

from covey.base.errors import ConfigError
from covey.cli.answer import Commands

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


GROUP = "covey.commands"

EVERYWHERE = frozenset({"quiet", "verbose", "log_file"})
"""Options of the whole, that may stand after a command's name as well."""

PANELS = RUNS, PRIVACY, LEAVING, OPERATION = "Runs", "Privacy", "Leaving", "Operation"
"""What `covey --help` sorts commands by, as their `rich_help_panel`."""


class Row(NamedTuple):
    """Where a command is defined, the first line of its help, and under what it is listed.

    Importing the module adds the command to `app`.
    """

    module: str
    help: str
    panel: str = RUNS


MODULES = ("runs", "privacy", "leaving", "requests", "operation")
"""Of this folder, each with commands, as they are listed; importing them loads nothing heavy."""


@cache
def installed() -> Mapping[str, Row | ConfigError]:
    """Return the rows of other packages' commands; why one cannot be had, in its place."""
    from importlib.metadata import entry_points  # only where it is wanted

    return {p.name: _row(p) for p in sorted(entry_points(group=GROUP))}


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
        f"package again that has it, or uninstall it."
    )


class Unloaded(TyperCommand):
    """A name and a line of help, until the command is wanted."""


class CommandGroup(TyperGroup):
    """The commands by name; covey's own are not replaced by another package's."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of covey's own commands, then those of other packages."""
        del ctx
        panels = {n: getattr(each, "rich_help_panel", "") for n, each in self.commands.items()}
        own = sorted(panels, key=lambda name: PANELS.index(panels[name] or RUNS))
        return [*own, *(name for name in installed() if name not in self.commands)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, or what stands for it until it is wanted."""
        own = super().get_command(ctx, cmd_name)
        if own is not None or cmd_name not in installed():
            return own
        row = installed()[cmd_name]
        if isinstance(row, ConfigError):
            return Unloaded(cmd_name, help=str(row))
        return Unloaded(cmd_name, help=row.help, rich_help_panel=row.panel)

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


app = Commands(
    name="covey",
    cls=CommandGroup,
    help="Federated learning in which every client chooses how exposed it is.",
    no_args_is_help=True,
    suggest_commands=False,  # click does
    pretty_exceptions_enable=False,
)


def all_commands() -> CommandGroup:
    """Return the group of all commands; another package's stay unloaded."""
    for module in MODULES:
        import_module(f"covey.cli.{module}")
    group = typer.main.get_command(app)
    assert isinstance(group, CommandGroup)  # noqa: S101 - what the app was made with
    return group


def loaded(name: str) -> click.Command:
    """Return a command, once its module is imported.

    Raises:
        ConfigError: the package that has it cannot be imported.
    """
    own = all_commands().commands
    if name not in own:
        row = installed()[name]
        if isinstance(row, ConfigError):
            raise row
        import_module(row.module)
        own = all_commands().commands
    return own[name]
