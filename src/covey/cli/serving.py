"""`covey serve`."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from covey.cli.app import JsonOption, app, stated
from covey.cli.consoles import errors
from covey.cli.run_list import DEFAULT_ROOT
from covey.errors import ConfigError

if TYPE_CHECKING:
    from covey.cli.outputs.machine import Served

__all__ = ["serve"]

PORT = 8765
NICENESS = 5
"""Who reads must not slow down who plays."""
NEEDED = ("starlette", "uvicorn")


@app.command()
def serve(
    roots: Annotated[
        list[Path] | None,
        typer.Argument(help="Folders that runs lie below. Default: runs"),
    ] = None,
    port: Annotated[
        int,
        typer.Option(
            min=0, max=65535, help="On this machine only; 0: any that is free."
        ),
    ] = PORT,
    write: Annotated[
        bool,
        typer.Option(
            "--write", help="Allow forms: requests are taken in, answered and closed."
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show runs in a browser on this machine, live; nothing is written without --write."""
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise ConfigError(
            f"Pages in a browser need {' and '.join(missing)}, and covey was installed "
            f'without. Install them: pip install "covey[serve]".'
        )
    from covey import web

    with suppress(OSError, AttributeError):  # Windows has no niceness
        os.nice(NICENESS)
    server = web.serve(roots or [Path(DEFAULT_ROOT)], port, _tell_next, write=write)
    told: Served = {"link": server.link}
    stated(told, f"Open {server.link}", as_json=as_json)
    sys.stdout.flush()
    errors.print("It opens one browser; Ctrl-C ends it.", soft_wrap=True)
    if write:
        errors.print(
            "Who opens it can answer requests to leave, and that cannot be taken back.",
            soft_wrap=True,
        )
    server.run()


def _tell_next(link: str) -> None:
    errors.print(f"A browser was let in. For another one: {link}", soft_wrap=True)
