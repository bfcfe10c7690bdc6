"""`covey config`, `covey data` and `covey deploy`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from covey.base.errors import ConfigError, DataError
from covey.cli.answer import INLINE, Answer, Commands, JsonOption, Verdict, tabled
from covey.cli.app import BAD_INPUT, FAILED_CHECK, app
from covey.cli.runs import SetOption
from covey.data.source import DataFile, check_data, data_folder

if TYPE_CHECKING:
    from covey.config.problems import Problem
    from covey.config.rules import Idle
    from covey.deploy.checks import Finding, Status


config = Commands(
    help="Check a file of settings, describe them all, or write one to start from.",
    no_args_is_help=True,
)
app.add_typer(config, name="config")

OutOption = Annotated[
    Path | None, typer.Option("--out", help="A new file; default: standard output.")
]


@dataclass(frozen=True, slots=True)
class ConfigChecked(Answer):
    """Every mistake in a file of settings, and what in it does nothing.

    Attributes:
        unused_settings: None: there are mistakes.
    """

    file: Path
    valid: bool
    problems: Sequence[Problem]
    unused_settings: Sequence[Idle] | None

    @property
    def exit_code(self) -> int:
        """Return 2 if something is wrong."""
        return 0 if self.valid else BAD_INPUT

    def lines(self) -> Iterator[str]:
        """Yield that nothing is wrong, and what does nothing."""
        yield f"{self.file}: nothing is wrong"
        yield from (f"note: {each.sentence}" for each in self.unused_settings or ())


@config.command()
def check(
    file: Annotated[Path, typer.Argument(help="Settings in TOML.")],
    overrides: SetOption = None,
    as_json: JsonOption = False,
) -> ConfigChecked:
    """Tell every mistake in settings, and what does nothing; exit code 2 if any is wrong.

    No data are read: whether they are there shows when a run starts.
    """
    from covey.config.problems import together
    from covey.config.settings import Config, idle_settings, read_settings

    settings, of_pairs = read_settings(file, overrides or [])
    problems = (*of_pairs, *Config.problems(settings))
    if problems and not as_json:
        raise ConfigError(f"{file}: {together(problems)}")
    unused = None if problems else idle_settings(Config.of(settings))
    return ConfigChecked(file, not problems, problems, unused)


@dataclass(frozen=True, slots=True)
class SchemaPrinted(Answer):
    """The JSON schema of the settings."""

    schema: Mapping[str, Any] = field(metadata=INLINE)

    def lines(self) -> Iterator[str]:
        """Yield it as JSON."""
        yield json.dumps(self.schema, indent=2)


@dataclass(frozen=True, slots=True)
class SchemaWritten(Answer):
    """A file that was written."""

    file: Path

    def lines(self) -> Iterator[str]:
        """Yield its path."""
        yield f"schema: {self.file}"


@config.command()
def schema(out: OutOption = None) -> SchemaPrinted | SchemaWritten:
    """Print the JSON schema of all settings, which says what each means."""
    from covey.config.problems import schema as schema_of_settings

    printed = SchemaPrinted(schema_of_settings())
    if out is None:
        return printed
    _write_new(out, "\n".join(printed.lines()) + "\n")
    return SchemaWritten(out)


@dataclass(frozen=True, slots=True)
class ConfigTemplate(Answer):
    """A file of all settings.

    Attributes:
        file: None: it was not written.
        toml: its text.
    """

    file: Path | None
    toml: str

    def lines(self) -> Iterator[str]:
        """Yield its path, or its text."""
        yield f"settings: {self.file}" if self.file else self.toml.rstrip()


@config.command()
def init(out: OutOption = None) -> ConfigTemplate:
    """Write a file of all settings at their defaults, with what each means."""
    from covey.config.problems import template

    text = template()
    if out is not None:
        _write_new(out, text)
    return ConfigTemplate(out, text)


def _write_new(out: Path, text: str) -> None:
    """Write a new file.

    Raises:
        ConfigError: there is something already, or no folder.
    """
    try:
        with out.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ConfigError(
            f"--out must be a new file, and {out} is there already. Give another."
        ) from None
    except OSError as error:
        raise ConfigError(f"{out} cannot be written: {error}. Give another.") from None


@dataclass(frozen=True, slots=True)
class DataFiles(Answer):
    """The data files that covey can read."""

    folder: Path
    files: Sequence[DataFile]

    def lines(self) -> Iterator[str]:
        """Yield a line per file, and where to get those that are missing."""
        yield f"in {self.folder}"
        for each in self.files:
            md5 = f"MD5 {each.md5}" if each.md5 else ""
            yield f"{each.state:10} {each.source:14} {each.file:42} {md5}".rstrip()
        missing = {
            f"{each.source}: {each.url.removesuffix(each.file)}"
            for each in self.files
            if each.state == "missing"
        }
        if missing:
            yield from ("", "get what is missing:", *sorted(missing))


@app.command()
def data(
    action: Annotated[str, typer.Argument(help="list or check")] = "list",
    folder: Annotated[str, typer.Option("--dir", help="Default: $COVEY_DATA.")] = "",
) -> Iterator[DataFiles]:
    """List the data files that covey can read, or check those that are there."""
    if action not in ("list", "check"):
        raise ConfigError(f"covey data takes list or check, found {action!r}.")
    where = data_folder(folder)
    files = check_data(where)
    yield DataFiles(where, files)
    corrupt = [each for each in files if each.state == "corrupt"]
    if action == "check" and corrupt:
        raise DataError(
            f"{len(corrupt)} files are not the published ones, first {corrupt[0].file}. "
            f"Fetch them again from {corrupt[0].url}."
        )


deploy = Commands(help="Prepare, check and watch a federation on Flower.", no_args_is_help=True)
app.add_typer(deploy, name="deploy")


@dataclass(frozen=True, slots=True)
class FederationWritten(Answer):
    """A federation's folder.

    Attributes:
        address: of the server, as nodes see it.
        nodes: folders by name.
    """

    folder: Path
    address: str
    insecure: bool
    nodes: Mapping[str, Path]

    def lines(self) -> Iterator[str]:
        """Yield what was written, and what to read next."""
        warning = ", INSECURE" if self.insecure else ""
        yield f"{self.folder}: {len(self.nodes)} nodes, server at {self.address}{warning}"
        yield f"next: {self.folder / 'README.md'}"


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
) -> FederationWritten:
    """Write all that is started on the server and carried to the nodes."""
    from covey.deploy.folder import Plan, write_federation

    pairs = (each.partition("=") for each in organisation or ())
    organisations = {name: whose for name, _, whose in pairs}
    plan = Plan(tuple(node), host, port, insecure, organisations)
    folder = write_federation(config, out, plan, datetime.now(UTC))
    nodes = {name: folder / "nodes" / name for name in plan.nodes}
    return FederationWritten(folder, plan.address, insecure, nodes)


@dataclass(frozen=True, slots=True)
class FederationChecked(Verdict):
    """What is missing, wrong or risky in a federation's folder.

    Attributes:
        valid: no finding is an error.
    """

    findings: Sequence[Finding]

    def lines(self) -> Iterator[str]:
        """Yield a line per finding."""
        for each in self.findings:
            yield f"{each.level:8} {each.about}: {each.detail}"


@deploy.command("check")
def check_folder(
    folder: Annotated[Path, typer.Argument(help="A federation's folder, or that of one node.")],
) -> FederationChecked:
    """Look for what is missing, wrong or risky; exit code 1 if something is wrong."""
    from covey.deploy.checks import check

    findings = check(folder, datetime.now(UTC))
    return FederationChecked(all(each.level != "error" for each in findings), findings)


@dataclass(frozen=True, slots=True)
class FederationStatus(Answer):
    """Which nodes are online, and how the runs are.

    Attributes:
        answers: whether the server did.
    """

    folder: Path
    answers: bool
    status: Status = field(metadata=INLINE)

    @property
    def exit_code(self) -> int:
        """Return 1 without an answer of the server."""
        return 0 if self.answers else FAILED_CHECK

    def lines(self) -> Iterator[str]:
        """Yield tables of nodes and runs, or why there are none."""
        if self.status.problem:
            yield self.status.problem
            return
        yield f"server at {self.status.address}\n"
        nodes = ((n.name or "?", n.state, n.since or "-", n.id or "-") for n in self.status.nodes)
        yield tabled(("node", "state", "since", "id"), nodes)
        runs = [(r.id, r.state, r.detail, f"{r.elapsed:.0f}") for r in self.status.runs]
        yield "\n" + (tabled(("run", "state", "detail", "seconds"), runs) if runs else "no runs")


@deploy.command()
def status(
    folder: Annotated[Path, typer.Argument(help="The folder that `covey deploy init` wrote.")],
) -> FederationStatus:
    """Tell which nodes are online and how the runs are; exit code 1 without an answer."""
    from covey.deploy.checks import status_of

    found = status_of(folder)
    return FederationStatus(folder, not found.problem, found)
