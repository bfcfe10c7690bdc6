"""`covey report`, `covey export` and `covey data`."""

from pathlib import Path
from typing import Annotated

import typer

from covey.api import load
from covey.cli.app import JsonOption, app, stated
from covey.cli.divergence import diverged_in, fail_if_diverged
from covey.data import check_data, data_folder
from covey.errors import ConfigError, DataError
from covey.runs import page_of, page_over
from covey.simulation import RunFolder

__all__ = ["data", "export", "report"]


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs.")],
    out: Annotated[Path | None, typer.Option("--out", help="The HTML file.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Write a run's report again, or one that compares several runs.

    Exit code 1 if a model of theirs diverged: the report says which.
    """
    page = page_of(runs[0], None, out) if len(runs) == 1 else page_over(runs, out)
    told = {str(run): load(run).history for run in runs}
    answer = {"report": str(page), "diverged": diverged_in(told)}
    stated(answer, f"report: {page}", as_json=as_json)
    fail_if_diverged(told)


@app.command()
def export(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    client: Annotated[
        str | None, typer.Option(help="The model this client uses.")
    ] = None,
    cluster: Annotated[int | None, typer.Option(help="This cluster's model.")] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="The file to write; default in RUN/exports."),
    ] = None,
    recipient: Annotated[
        str,
        typer.Option(
            help="For whom. Kept on record: covey forget says who is to be notified, and "
            "proofs name it."
        ),
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Write one cluster model's state dict as safetensors, and put it on record."""
    if (client is None) == (cluster is None):
        raise ConfigError(
            "Export takes either --client NAME or --cluster J, and exactly one of them."
        )
    copy = load(run).export(cluster, client, out, recipient)
    path = copy.place(RunFolder(run))
    answer = {
        "file": str(path),
        "cluster": copy.cluster,
        "sha256": copy.sha256,
        "recipient": copy.recipient or None,
    }
    stated(answer, f"cluster {copy.cluster} -> {path}", as_json=as_json)


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
