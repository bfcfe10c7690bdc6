"""The commands of `covey`: covey's own, and those of other packages, imported when called.

Another package adds a command by an entry point of the group `covey.commands` that names a
`Row`. Help, completion and a mistyped name need no more of that package.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from covey.base.errors import ConfigError
from covey.cli.answer import show, wants_json
from covey.cli.console import be_quiet, be_verbose, log_into

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENTRY_POINTS = "covey.commands"

RUNS, PRIVACY, LEAVING, OPERATION = "Runs", "Privacy", "Leaving", "Operation"
OWN: Mapping[str, Mapping[str, str]] = {
    RUNS: {
        "run": "runs:run",
        "resume": "runs:resume",
        "sweep": "runs:sweep",
        "report": "runs:report",
        "export": "runs:export",
        "runs": "runs:runs",
    },
    PRIVACY: {
        "audit": "privacy:audit",
        "guarantee": "privacy:guarantee",
        "explain": "privacy:explain",
    },
    LEAVING: {"forget": "leaving:forget", "verify": "leaving:verify"},
    OPERATION: {"ledger": "operation:ledger", "config": "operation:config"},
}
"""covey's own commands as `module:name` of this folder, by the panel that lists them."""
PLACES = {name: place for places in OWN.values() for name, place in places.items()}

PATH = click.Path(path_type=Path)

trust_code_option = click.option(
    "--trust-code",
    is_flag=True,
    help="Allow, from now on, the code that the run's settings name, as it is now. A run that you "
    "began needs it only if that code changed or the folder was moved.",
)
trust_servers_option = click.option(
    "--trust-servers",
    is_flag=True,
    help="Allow, from now on, the database, cluster and trackers that the run's settings name.",
)


def _flag(names: Sequence[str], apply: Callable[[bool], object], meaning: str) -> click.Option:
    """Return an option that no function gets: what it is for is done at once."""
    return click.Option(
        names,
        is_flag=True,
        expose_value=False,
        callback=lambda _context, _param, wanted: apply(wanted),
        help=meaning,
    )


JSON = _flag(["--json"], wants_json.set, "Print exactly one JSON object on standard output.")
EVERYWHERE = (
    _flag(["--quiet", "-q"], be_quiet, "Show no progress, only results and errors."),
    _flag(["--verbose", "-v"], be_verbose, "Log each step to standard error."),
    click.Option(
        ["--log-file"],
        type=PATH,
        expose_value=False,
        callback=lambda _context, _param, path: log_into(path),
        help="Log each step to the end of this file.",
    ),
)
"""Options that may stand before a command's name and after it."""


class _RichHelp(click.Command):
    """A command whose help is drawn in panels, with colours on a terminal."""

    def get_help(self, ctx: click.Context) -> str:
        """Return the help as text."""
        console = Console(markup=False, highlight=False, emoji=False)
        with console.capture() as captured:
            console.print(Padding(Text(self.get_usage(ctx), "bold"), 1))
            for paragraph in (self.help or "").split("\n\n"):
                console.print(Padding(" ".join(paragraph.split()), (0, 1, 1, 1)))
            for title, rows in self.help_panels(ctx):
                console.print(_panel(title, rows))
        return captured.get().rstrip()

    def help_panels(self, ctx: click.Context) -> Iterator[tuple[str, Sequence[tuple[str, str]]]]:
        """Yield each panel's title and its rows of a name and what it means."""
        params = self.get_params(ctx)
        arguments = [p for p in params if isinstance(p, Argument)]
        if arguments:
            yield "Arguments", [(p.make_metavar(ctx), p.help) for p in arguments]
        records = (p.get_help_record(ctx) for p in params if isinstance(p, click.Option))
        yield "Options", list(filter(None, records))


def _panel(title: str, rows: Iterable[tuple[str, str]]) -> Panel:
    table = Table.grid(padding=(0, 2))
    for name, meaning in rows:
        table.add_row(Text(name, "bold cyan"), Text(meaning))
    return Panel(table, title=title, title_align="left", border_style="dim")


class Argument(click.Argument):
    """An argument with a line of help."""

    def __init__(self, param_decls: Sequence[str], *, help: str, **settings: Any) -> None:  # noqa: ANN401
        super().__init__(param_decls, **settings)
        self.help = help


argument = partial(click.argument, cls=Argument)


class Command(_RichHelp):
    """A command that takes `--json`, and whose result is printed."""

    def __init__(self, *args: Any, params: Sequence[click.Parameter] = (), **settings: Any) -> None:  # noqa: ANN401
        super().__init__(*args, params=[*params, JSON, *EVERYWHERE], **settings)

    def invoke(self, ctx: click.Context) -> None:
        """Run the command, and print what it returns or yields."""
        returned = super().invoke(ctx)
        for answer in returned if isinstance(returned, Iterator) else filter(None, [returned]):
            show(answer)


class CommandGroup(_RichHelp, click.Group):
    """Commands under one name."""

    command_class = Command

    def __init__(self, *args: Any, params: Sequence[click.Parameter] = (), **settings: Any) -> None:  # noqa: ANN401
        super().__init__(*args, params=[*params, *EVERYWHERE], no_args_is_help=True, **settings)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the arguments name; a mistyped name gets a suggestion."""
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            near = get_close_matches(name, self.list_commands(ctx))
            hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
            ctx.fail(f"No such command {name!r}.{hint}")
        return super().resolve_command(ctx, args)

    def help_panels(self, ctx: click.Context) -> Iterator[tuple[str, Sequence[tuple[str, str]]]]:
        """Yield the options, then the commands."""
        yield from super().help_panels(ctx)
        rows = [(name, command.get_short_help_str(200)) for name, command in self.commands.items()]
        yield "Commands", rows


command = partial(click.command, cls=Command)


@dataclass(frozen=True, slots=True)
class CommandRow:
    """A command of another package.

    Attributes:
        command: `package.module:name` of a `Command` or a `CommandGroup`.
        help: the first line of its help.
        panel: of `covey --help`, in which it is listed.
    """

    command: str
    help: str
    panel: str = RUNS


class _Unloaded(click.Command):
    """Another package's command, for help and completion: its name and a line of help.

    Attributes:
        row: where it is, or why that is not known.
        panel: of `covey --help`.
    """

    def __init__(self, name: str, row: CommandRow | ConfigError) -> None:
        self.row = row
        self.panel = row.panel if isinstance(row, CommandRow) else RUNS
        super().__init__(name, help=row.help if isinstance(row, CommandRow) else str(row))


@cache
def installed() -> Mapping[str, _Unloaded]:
    """Return stand-ins for other packages' commands; none replaces one of covey's own."""
    from importlib.metadata import entry_points  # slow, and imports these packages

    points = sorted(entry_points(group=ENTRY_POINTS))
    return {p.name: _Unloaded(p.name, _row(p)) for p in points if p.name not in PLACES}


def _row(point: "EntryPoint") -> CommandRow | ConfigError:
    try:
        row = point.load()
    except Exception as error:
        why = f"that importing it failed: {error}"
    else:
        if isinstance(row, CommandRow):
            return row
        why = f"a {type(row).__name__}"
    return ConfigError(
        f"The command {point.name!r} must be a covey.cli.commands.CommandRow at {point.value}, "
        f"found {why}: install the package again that has it, or uninstall it."
    )


class _AllCommands(CommandGroup):
    """All commands by name; other packages are looked for where covey has no such command."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of covey's own commands, then those of other packages."""
        del ctx
        return [*PLACES, *installed()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command; of another package, a stand-in with its help."""
        del ctx
        return loaded(cmd_name) if cmd_name in PLACES else installed().get(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the arguments name, and load it."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, loaded(str(name)) if isinstance(command, _Unloaded) else command, rest

    def help_panels(self, ctx: click.Context) -> Iterator[tuple[str, Sequence[tuple[str, str]]]]:
        """Yield the options, then the commands by what they are for."""
        yield from _RichHelp.help_panels(self, ctx)
        for panel, names in OWN.items():
            theirs = [command for command in installed().values() if command.panel == panel]
            listed = [*map(loaded, names), *theirs]
            yield (
                panel,
                [(str(command.name), command.get_short_help_str(200)) for command in listed],
            )


def loaded(name: str) -> click.Command:
    """Return a command by its name, once its module is imported.

    Raises:
        ConfigError: the package that has it cannot be imported.
    """
    if name in PLACES:
        place = f"covey.cli.{PLACES[name]}"
    else:
        row = installed()[name].row
        if isinstance(row, ConfigError):
            raise row
        place = row.command
    module, _, attribute = place.partition(":")
    return getattr(import_module(module), attribute)


app = click.version_option(package_name="covey", message="%(prog)s %(version)s")(
    _AllCommands(
        "covey", help="Federated learning in which every client chooses how exposed it is."
    )
)
