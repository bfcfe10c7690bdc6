"""`covey config`, `covey data` and `covey deploy`."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from covey.base.errors import ConfigError, DataError
from covey.cli.app import BAD_INPUT, FAILED_CHECK, JsonOption, app, stated
from covey.cli.inspect import tabled
from covey.cli.runs import SetOption, as_answer
from covey.config.problems import schema as schema_of_settings
from covey.config.problems import template, together
from covey.config.settings import Config, read_settings
from covey.config.unheeded import unheeded
from covey.data.source import check_data, data_folder

if TYPE_CHECKING:
    from covey.deploy.checks import Status


config = typer.Typer(
    help="Check a file of settings, describe them all, or write one to start from.",
    no_args_is_help=True,
)
app.add_typer(config, name="config")

OutOption = Annotated[
    Path | None, typer.Option("--out", help="A new file; default: standard output.")
]


@config.command()
def check(
    file: Annotated[Path, typer.Argument(help="Settings in TOML.")],
    overrides: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Tell every mistake in settings, and what does nothing; exit code 2 if any is wrong.

    No data are read: whether they are there shows when a run starts.
    """
    given, of_pairs = read_settings(file, overrides or [])
    problems = (*of_pairs, *Config.problems(given))
    if problems and not as_json:
        raise ConfigError(f"{file}: {together(problems)}")
    found = () if problems else unheeded(Config.of(given))
    answer: dict[str, Any] = {
        "file": str(file),
        "valid": not problems,
        "problems": [each.answer() for each in problems],
        "unused_settings": None if problems else [as_answer(each) for each in found],
    }
    lines = [f"{file}: nothing is wrong", *(f"note: {each.told}" for each in found)]
    stated(answer, "\n".join(lines), as_json=as_json)
    if problems:
        raise typer.Exit(BAD_INPUT)


@config.command()
def schema(out: OutOption = None, as_json: JsonOption = False) -> None:
    """Print the JSON schema of all settings, which says what each means."""
    text = json.dumps(schema_of_settings(), indent=2)
    _written(text + "\n", out)
    told = schema_of_settings() if out is None else {"file": str(out)}
    stated(told, text if out is None else f"schema: {out}", as_json=as_json)


@config.command()
def init(out: OutOption = None, as_json: JsonOption = False) -> None:
    """Write a file of all settings at their defaults, with what each means."""
    text = template()
    _written(text, out)
    told = {"file": str(out) if out else None, "toml": text}
    stated(told, text.rstrip() if out is None else f"settings: {out}", as_json=as_json)


def _written(text: str, out: Path | None) -> None:
    """Write a new file, if there is a path.

    Raises:
        ConfigError: there is something already, or no folder.
    """
    if out is None:
        return
    try:
        with out.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ConfigError(
            f"--out must be a new file, and {out} is there already. Give another."
        ) from None
    except OSError as error:
        raise ConfigError(f"{out} cannot be written: {error}. Give another.") from None


@app.command()
def data(
    action: Annotated[str, typer.Argument(help="list or check")] = "list",
    folder: Annotated[str, typer.Option("--dir", help="Default: $COVEY_DATA.")] = "",
    as_json: JsonOption = False,
) -> None:
    """List the data files that covey can read, or check those that are there."""
    if action not in ("list", "check"):
        raise ConfigError(f"covey data takes list or check, found {action!r}.")
    where = data_folder(folder)
    found = check_data(where)
    corrupt = [each for each in found if each.state == "corrupt"]
    answer = {
        "folder": str(where),
        "files": [
            {
                "source": f.source,
                "file": f.name,
                "state": f.state,
                "url": f.url,
                "md5": f.md5 or None,
            }
            for f in found
        ],
    }
    lines = [
        f"{f.state:10} {f.source:14} {f.name:42} {f.md5 and f'MD5 {f.md5}'}".rstrip() for f in found
    ]
    missing = sorted(
        {f"{f.source}: {f.url.removesuffix(f.name)}" for f in found if f.state == "missing"}
    )
    text = "\n".join(
        [f"in {where}", *lines, *(["", "get what is missing:"] if missing else []), *missing]
    )
    stated(answer, text, as_json=as_json)
    if action == "check" and corrupt:
        raise DataError(
            f"{len(corrupt)} files are not the published ones, first {corrupt[0].name}. "
            f"Fetch them again from {corrupt[0].url}."
        )


deploy = typer.Typer(help="Prepare, check and watch a federation on Flower.", no_args_is_help=True)
app.add_typer(deploy, name="deploy")

FolderArgument = Annotated[Path, typer.Argument(help="The folder that `covey deploy init` wrote.")]


@deploy.command("init")
def init_folder(
    config: Annotated[Path, typer.Argument(help="Settings in TOML.")],
    out: Annotated[Path, typer.Option("--out", help="The federation's new folder.")],
    node: Annotated[list[str], typer.Option("--node", help="A client's name; repeatable.")],
    host: Annotated[
        str, typer.Option(help="The server's name or address, as nodes see it.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The server's only port.")] = 8000,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="No encryption: anybody can join and read.")
    ] = False,
    organisation: Annotated[
        list[str] | None,
        typer.Option(
            "--organisation",
            help="NAME=WHOSE: whose client a node is, which you attest; repeatable.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write all that is started on the server and carried to the nodes."""
    from covey.deploy.folder import Plan, write_federation

    parted = (each.partition("=") for each in organisation or ())
    whose = {name: told for name, _, told in parted}
    plan = Plan(tuple(node), host, port, insecure, whose)
    folder = write_federation(config, out, plan, datetime.now(UTC))
    answer = {
        "folder": str(folder),
        "address": plan.address,
        "insecure": insecure,
        "nodes": {name: str(folder / "nodes" / name) for name in plan.nodes},
    }
    text = (
        f"{folder}: {len(plan.nodes)} nodes, server at {plan.address}"
        f"{', INSECURE' if insecure else ''}\nnext: {folder / 'README.md'}"
    )
    stated(answer, text, as_json=as_json)


@deploy.command("check")
def check_folder(
    folder: Annotated[Path, typer.Argument(help="A federation's folder, or that of one node.")],
    as_json: JsonOption = False,
) -> None:
    """Look for what is missing, wrong or risky; exit code 1 if something is wrong."""
    from covey.deploy.checks import check

    found = check(folder, datetime.now(UTC))
    valid = all(finding.level != "error" for finding in found)
    told = {"valid": valid, "findings": [asdict(finding) for finding in found]}
    lines = [f"{each.level:8} {each.about}: {each.detail}" for each in found]
    stated(told, "\n".join(lines), as_json=as_json)
    if not valid:
        raise typer.Exit(FAILED_CHECK)


@deploy.command()
def status(folder: FolderArgument, as_json: JsonOption = False) -> None:
    """Tell which nodes are online and how the runs are; exit code 1 without an answer."""
    from covey.deploy.checks import status_of

    found = status_of(folder)
    stated(
        {"folder": str(folder), "answers": not found.problem, **asdict(found)},
        found.problem or _status_text(found),
        as_json=as_json,
    )
    if found.problem:
        raise typer.Exit(FAILED_CHECK)


def _status_text(found: Status) -> str:
    nodes = [
        (node.name or "?", node.state, node.since or "-", node.id or "-") for node in found.nodes
    ]
    runs = [(run.id, run.state, run.detail, f"{run.elapsed:.0f}") for run in found.runs]
    return "\n\n".join(
        [
            f"server at {found.address}",
            tabled(("node", "state", "since", "id"), nodes),
            tabled(("run", "state", "detail", "seconds"), runs) if runs else "no runs",
        ]
    )
