"""`covey ledger` and `covey config`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from covey.base.as_json import INLINE
from covey.base.errors import ConfigError, DataError
from covey.cli.answer import BAD, BAD_INPUT, CommandResult, Line, Text, fail_if, text_of, wants_json
from covey.cli.commands import PATH, CommandGroup, argument
from covey.cli.runs import set_option

if TYPE_CHECKING:
    from covey.api.damage import Examination
    from covey.data.source import DataFile
    from covey.settings.problems import Problem
    from covey.settings.rules import Idle

ledger = CommandGroup("ledger", help="Keep the keys that sign, find damage.")


@dataclass(frozen=True, slots=True)
class Key:
    """A key that signs proofs, or did; moments in ISO 8601."""

    fingerprint: str
    since: str | None
    until: str | None
    revoked: str | None


@dataclass(frozen=True, slots=True)
class KeysListed:
    """The keys that sign proofs.

    Attributes:
        file: of the public keys.
    """

    file: Path
    keys: Sequence[Key]


@ledger.command()
@click.option("--rotate", is_flag=True, help="Set the key aside and make another.")
@click.option("--revoke", metavar="FINGERPRINT", help="Nothing counts that it signs.")
@click.option("--path", type=PATH, help="The private key's file; else the user's own.")
def keys(rotate: bool, revoke: str | None, path: Path | None) -> KeysListed:
    """List the keys that sign proofs, replace the one in use, or revoke one."""
    from covey.base import signature

    if revoke is not None:
        signature.revoke_key(revoke, path)
    if rotate:
        signature.rotate_key(path)
    place = signature.public_keys_path(path)

    def iso(moment: datetime | None) -> str | None:
        return moment.isoformat() if moment else None

    return KeysListed(
        place,
        [
            Key(signature.fingerprint(k.public), iso(k.since), iso(k.until), iso(k.revoked))
            for k in signature.key_records(place)
        ],
    )


@text_of("covey.api.damage.Examination")
def lines_of_examination(examination: Examination) -> Iterator[Line]:
    """Yield what is damaged, why, and what to do."""
    for damage in examination.damaged:
        yield Text("DAMAGED", BAD).append(f"   {damage.what}: {damage.path}", "default")
        yield from (f"          {sentence}" for sentence in (damage.problem, damage.remedy))
    if not examination.damaged:
        yield "nothing is damaged"


@ledger.command()
@argument("run", type=PATH, help="The folder of a run.")
def doctor(run: Path) -> Iterator[Examination]:
    """Say what is damaged in a run, and what to do; nothing is changed.

    Exit code 1 if something is damaged.
    """
    from covey.api.damage import examine

    examination = examine(run)
    yield examination
    fail_if(bool(examination.damaged))


config = CommandGroup(
    "config",
    help="Check a file of settings, describe them all, write one to start from; data files.",
)


@dataclass(frozen=True, slots=True)
class ConfigChecked:
    """Every mistake in a file of settings, and what in it does nothing.

    Attributes:
        unused_settings: None: there are mistakes.
    """

    file: Path
    valid: bool
    problems: Sequence[Problem]
    unused_settings: Sequence[Idle] | None


@config.command()
@argument("file", type=PATH, help="Settings in TOML.")
@set_option
def check(file: Path, overrides: Sequence[str]) -> Iterator[ConfigChecked]:
    """List every mistake in settings, and what does nothing; exit code 2 if any is wrong.

    No data are read: whether they are there shows when a run starts.
    """
    from covey.settings.load import Config, idle_settings, read_settings
    from covey.settings.problems import together

    settings, of_pairs = read_settings(file, overrides)
    problems = (*of_pairs, *Config.problems(settings))
    if problems and not wants_json.get():
        raise ConfigError(f"{file}: {together(problems)}")
    unused = None if problems else idle_settings(Config.of(settings))
    yield ConfigChecked(file, not problems, problems, unused)
    fail_if(BAD_INPUT if problems else 0)


@dataclass(frozen=True, slots=True)
class SettingsFile(CommandResult):
    """A file that was written, or would be.

    Attributes:
        file: None: it was not written.
        text: of the file.
    """

    file: Path | None
    text: str

    def lines(self) -> Iterator[Line]:
        """Yield its path, or its text."""
        yield f"file: {self.file}" if self.file else self.text.rstrip()


@dataclass(frozen=True, slots=True)
class SchemaPrinted(CommandResult):
    """The JSON schema of the settings."""

    schema: Mapping[str, Any] = field(metadata=INLINE)

    def lines(self) -> Iterator[Line]:
        """Yield it as JSON."""
        yield json.dumps(self.schema, indent=2)


@config.command()
def schema() -> SchemaPrinted:
    """Print the JSON schema of all settings, which says what each means."""
    from covey.settings.reference import schema as schema_of_settings

    return SchemaPrinted(schema_of_settings())


@config.command()
@click.option("--out", type=PATH, help="A new file; default: standard output.")
def init(out: Path | None) -> SettingsFile:
    """Write a file of the settings at their defaults, each with a line of meaning."""
    from covey.settings.reference import template

    text = template()
    if out is not None:
        try:
            with out.open("x", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise ConfigError(
                f"--out must be a new file that can be written, found {error}: give another."
            ) from None
    return SettingsFile(out, text)


@dataclass(frozen=True, slots=True)
class DataFiles:
    """The data files that covey can read."""

    folder: Path
    files: Sequence[DataFile]


@config.command()
@argument(
    "action",
    type=click.Choice(["list", "check"]),
    default="list",
    help="Check: compare each file's hash with the published one.",
)
@click.option("--dir", "folder", default="", help="Default: $COVEY_DATA.")
def data(action: str, folder: str) -> Iterator[DataFiles]:
    """List the data files that covey can read, or check those that are there."""
    from covey.data.source import check_data, data_folder

    where = data_folder(folder)
    files = check_data(where)
    yield DataFiles(where, files)
    corrupt = [file for file in files if file.state == "corrupt"]
    if action == "check" and corrupt:
        raise DataError(
            f"Data files must be the published ones, found {len(corrupt)} others, first "
            f"{corrupt[0].file}: fetch them again from {corrupt[0].url}."
        )
