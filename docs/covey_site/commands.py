"""The commands, a page each, as the parser knows them."""

from collections.abc import Iterator, Mapping

import click

from covey.cli.commands import app, loaded
from covey_site.markdown import escaped, hidden_tree

WHOLE = "covey"


def command_pages() -> Mapping[str, str]:
    """Return every command's page by its address."""
    written = {
        _address(name): "\n".join(_described(loaded(name), f"covey {name}")) for name in _names()
    }
    return {_address(WHOLE): _of_all(), **written}


def command_tree() -> str:
    """Return the list of the pages, for the page on what all commands share."""
    listed = ", ".join(f"[`{name}`]({_address(name)}.md)" for name in _names())
    tree = hidden_tree(map(_address, (WHOLE, *_names())))
    return f"Every option of {listed}; and of [all]({_address(WHOLE)}.md).\n\n{tree}\n"


def _of_all() -> str:
    """Return the page of the options that every command takes."""
    told = _table(app, click.Context(app))
    head = "Options that every command takes, before its name or after it."
    return "\n".join([f"# `{WHOLE}`", "", head, "", *told])


def _names() -> list[str]:
    return app.list_commands(click.Context(app))


def _address(name: str) -> str:
    return f"reference/commands/{name}"


def _described(command: click.Command, path: str, level: int = 1) -> Iterator[str]:
    """Describe a command, then those below it."""
    context = click.Context(command, info_name=path)
    usage = " ".join((path, *command.collect_usage_pieces(context)))
    yield from (f"{'#' * level} `{path}`", "", escaped(command.help or ""), "")
    yield from ("```text", usage, "```", "")
    yield from _table(command, context)
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            yield from _described(below, f"{path} {name}", level + 1)


def _table(command: click.Command, context: click.Context) -> Iterator[str]:
    rows = [
        row
        for param in command.params
        if not getattr(param, "hidden", False)
        if (row := _row(param, context))
    ]
    if rows:
        yield from ("| argument or option | meaning |", "|---|---|", *rows, "")


def _row(param: click.Parameter, context: click.Context) -> str:
    said = str(getattr(param, "help", None) or "")
    name = param.make_metavar(context)
    if isinstance(param, click.Option):
        metavar = "" if param.is_flag or param.count else f" {name}"
        name = ", ".join((*param.opts, *param.secondary_opts)) + metavar
    shown = name.replace("|", r"\|")
    return f"| `{shown}` | {escaped(said)}{_default(param)} |"


def _default(param: click.Parameter) -> str:
    """Return a default that the help does not already tell."""
    known = isinstance(param.default, str | int | float)
    if not known or isinstance(param.default, bool) or param.default == "":
        return ""
    return f" Default: `{param.default}`."
