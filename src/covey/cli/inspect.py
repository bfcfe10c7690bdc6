"""`covey report`, `covey export` and `covey dossier`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import covey
from covey import runtime
from covey.cli.app import JsonOption, app, stated
from covey.errors import ConfigError

__all__ = ["dossier", "export", "report"]


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs.")],
    out: Annotated[Path | None, typer.Option("--out", help="The HTML file.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Write a run's report again, or one that compares several runs.

    Exit code 1 if a model of theirs diverged: the report says which.
    """
    from covey.cli.divergence import diverged_in, fail_if_diverged
    from covey.runs import page_over

    held = {str(run): covey.load(run) for run in runs}
    page = held[str(runs[0])].report(out) if len(runs) == 1 else page_over(runs, out)
    told = {name: run.history for name, run in held.items()}
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
    after: Annotated[
        str,
        typer.Option(
            "--round",
            help="The model as it was after this round, counted from 1, or `best`: after "
            "the best by checkpoints.best, or by accuracy.",
        ),
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Write one cluster model's state dict as safetensors, and put it on record."""
    if (client is None) == (cluster is None):
        raise ConfigError(
            "Export takes either --client NAME or --cluster J, and exactly one of them."
        )
    held = covey.load(run)
    copy = held.export(cluster, client, out, recipient, _round_of(held, after))
    path = copy.location(runtime.RunFolder(run))
    answer = {
        "file": str(path),
        "cluster": copy.cluster,
        "sha256": copy.sha256,
        "recipient": copy.recipient or None,
    }
    stated(answer, f"cluster {copy.cluster} -> {path}", as_json=as_json)


def _round_of(run: covey.Run, text: str) -> int | None:
    """Return the round that is meant; None: the newest."""
    if text == "best":
        figure = runtime.RunFolder.existing(run.folder).config().checkpoints.best
        return run.best("accuracy" if figure == "none" else figure).round
    if text and not (text.isdecimal() and int(text) > 0):
        raise ConfigError(
            f"--round takes a round, counted from 1, or 'best', found {text!r}. Write for "
            f"example --round 7."
        )
    return int(text) - 1 if text else None


@app.command()
def dossier(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    out: Annotated[
        Path | None,
        typer.Option(help="A new folder, or NAME.zip; default in RUN/dossiers."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write a signed folder: what a run's models may give away, and on what evidence.

    For who must answer to an authority: privacy cards, lineage, and Annex IV's
    headings. Check one with covey verify.
    """
    written = covey.load(run).dossier(out)
    stated({"dossier": str(written)}, f"dossier: {written}", as_json=as_json)
