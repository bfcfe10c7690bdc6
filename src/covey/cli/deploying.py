"""`covey deploy`: a federation on Flower, from its folder to its nodes."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from covey import deploy as deployment
from covey.cli.app import FAILED_CHECK, JsonOption, app, stated
from covey.cli.tables import tabled

__all__ = ["deploy"]

deploy = typer.Typer(
    help="Prepare, check and watch a federation on Flower.", no_args_is_help=True
)
app.add_typer(deploy, name="deploy")

FolderArgument = Annotated[
    Path, typer.Argument(help="The folder that `covey deploy init` wrote.")
]


@deploy.command("init")
def init(
    config: Annotated[Path, typer.Argument(help="Settings in TOML.")],
    out: Annotated[Path, typer.Option("--out", help="The federation's new folder.")],
    node: Annotated[
        list[str], typer.Option("--node", help="A client's name; repeatable.")
    ],
    host: Annotated[
        str, typer.Option(help="The server's name or address, as nodes see it.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The server's only port.")] = 8000,
    insecure: Annotated[
        bool,
        typer.Option("--insecure", help="No encryption: anybody can join and read."),
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
    parted = (each.partition("=") for each in organisation or ())
    whose = {name: told for name, _, told in parted}
    plan = deployment.Plan(tuple(node), host, port, insecure, whose)
    folder = deployment.write_federation(config, out, plan, datetime.now(UTC))
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
    folder: Annotated[
        Path, typer.Argument(help="A federation's folder, or that of one node.")
    ],
    as_json: JsonOption = False,
) -> None:
    """Look for what is missing, wrong or risky; exit code 1 if something is wrong."""
    found = deployment.check(folder, datetime.now(UTC))
    valid = all(finding.level != "error" for finding in found)
    told = {"valid": valid, "findings": [asdict(finding) for finding in found]}
    lines = [f"{each.level:8} {each.about}: {each.detail}" for each in found]
    stated(told, "\n".join(lines), as_json=as_json)
    if not valid:
        raise typer.Exit(FAILED_CHECK)


@deploy.command()
def status(folder: FolderArgument, as_json: JsonOption = False) -> None:
    """Tell which nodes are online and how the runs are; exit code 1 without an answer."""
    found = deployment.status_of(folder)
    stated(
        {"folder": str(folder), "answers": not found.problem, **asdict(found)},
        found.problem or _status_text(found),
        as_json=as_json,
    )
    if found.problem:
        raise typer.Exit(FAILED_CHECK)


def _status_text(found: deployment.Status) -> str:
    nodes = [
        (node.name or "?", node.state, node.since or "-", node.id or "-")
        for node in found.nodes
    ]
    runs = [(run.id, run.state, run.detail, f"{run.elapsed:.0f}") for run in found.runs]
    return "\n\n".join(
        [
            f"server at {found.address}",
            tabled(("node", "state", "since", "id"), nodes),
            tabled(("run", "state", "detail", "seconds"), runs) if runs else "no runs",
        ]
    )
