"""The command line: exit codes, error sentences, and one JSON object per command."""

import json
import os
import sys
from typing import Annotated, Any

import typer

from covey.cli.commands import LazyGroup
from covey.errors import CoveyError, LedgerError

__all__ = ["JsonOption", "app", "main", "stated"]

app = typer.Typer(
    name="covey",
    cls=LazyGroup,
    help="Federated learning in which every client chooses how exposed it is.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

JsonOption = Annotated[
    bool,
    typer.Option("--json", help="Print exactly one JSON object on standard output."),
]

BAD_INPUT, FAILED_CHECK = 2, 1


def _print_version(wanted: bool) -> bool:
    if wanted:
        from covey.version import __version__

        print(f"covey {__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def _globally(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Say which covey this is.",
        ),
    ] = False,
) -> None:
    """Take what every command can be told."""


def main() -> None:
    """Run the command line; bad input is one sentence and exit code 2."""
    # Commands that run elsewhere find a user's own functions as `python -m` would.
    sys.path.insert(0, os.getcwd())  # noqa: PTH109
    try:
        app()
    except CoveyError as error:
        from covey.cli.progress import console

        console.print(f"covey: {error}", style="red", highlight=False, soft_wrap=True)
        code = FAILED_CHECK if isinstance(error, LedgerError) else BAD_INPUT
        raise SystemExit(code) from None


def stated(answer: dict[str, Any], text: str, *, as_json: bool) -> None:
    """Print the answer for a program or the text for a person."""
    print(json.dumps(answer, indent=2, allow_nan=False) if as_json else text)
