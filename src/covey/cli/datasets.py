"""`covey data`."""

from typing import Annotated

import typer

from covey.cli.app import JsonOption, app, stated
from covey.data import check_data, data_folder
from covey.errors import ConfigError, DataError

__all__ = ["data"]


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
        f"{f.state:10} {f.source:14} {f.name:42} {f.md5 and f'MD5 {f.md5}'}".rstrip()
        for f in found
    ]
    missing = sorted(
        {
            f"{f.source}: {f.url.removesuffix(f.name)}"
            for f in found
            if f.state == "missing"
        }
    )
    text = "\n".join(
        [
            f"in {where}",
            *lines,
            *(["", "get what is missing:"] if missing else []),
            *missing,
        ]
    )
    stated(answer, text, as_json=as_json)
    if action == "check" and corrupt:
        raise DataError(
            f"{len(corrupt)} files are not the published ones, first {corrupt[0].name}. "
            f"Fetch them again from {corrupt[0].url}."
        )
