"""`covey config`: what settings there are, and what is wrong with a file of them."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from covey.cli.app import BAD_INPUT, JsonOption, app, stated
from covey.cli.runs import SetOption
from covey.cli.unused import as_answer
from covey.config import Config, read_settings, together, unheeded
from covey.config.schema import schema as schema_of_settings
from covey.config.template import template
from covey.errors import ConfigError

__all__ = ["check", "init", "schema"]

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
