"""`covey audit`."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from covey import api
from covey.cli.app import JsonOption, app, stated
from covey.cli.progress import console
from covey.cli.tables import tabled
from covey.report import audit_rows
from covey.simulation import DEFAULT_ATTACKS

__all__ = ["audit"]


@app.command()
def audit(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    attack: Annotated[
        list[str] | None,
        typer.Option(
            "--attack",
            help="loss, shokri, lira, rmia (these four are the default), entropy, "
            "plain-entropy, lira-offline, rmia-offline, fedmia, source, or your own as "
            "package.module:function; repeatable.",
        ),
    ] = None,
    references: Annotated[
        int, typer.Option(help="Federations played again per cluster, at least 2.")
    ] = 4,
    as_json: JsonOption = False,
) -> None:
    """Attack every final cluster model, with its members against matched non-members."""

    def observe(cluster: int, played: int) -> None:
        line = f"cluster {cluster}: reference {played} of {references} played"
        console.print(line, highlight=False)

    began = time.monotonic()
    answer = api.audit(run, attack or DEFAULT_ATTACKS, references, observe=observe)
    page = run / "audit" / "audit.html"
    told = {
        "run": str(run),
        **answer,
        "seconds": round(time.monotonic() - began, 1),
        "report": str(page),
    }
    stated(told, f"{_text(told)}\nreport: {page}", as_json=as_json)


def _text(told: Mapping[str, Any]) -> str:
    """Return the overall figures as a table, with 95% intervals, and what is missing."""
    heads = (
        "cluster",
        "attack",
        "balanced accuracy",
        "AUC",
        "TPR at 1% FPR",
        "at 0.1%",
    )
    lines = [tabled(heads, (tuple(row.values()) for row in audit_rows(told)))]
    for each in told["clusters"]:
        reasons = [*filter(None, [each["reason"]]), *each["unknown"]]
        lines += [f"cluster {each['cluster']}: {reason}" for reason in reasons]
    if found := told["source"]:
        lines.append(
            f"source: {found['accuracy']:.3f}±{found['standard_error']:.3f} of the "
            f"members are claimed by their own cluster's model (always the largest "
            f"cluster: {found['prior_accuracy']:.3f})"
        )
    return "\n".join(lines)
