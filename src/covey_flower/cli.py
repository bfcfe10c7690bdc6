"""`covey deploy`: a federation's folder is written, checked and tried."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click

from covey.cli.answer import fail_if
from covey.cli.commands import OPERATION, PATH, CommandGroup, CommandRow, argument
from covey.cli.console import console

if TYPE_CHECKING:
    from covey.settings.trust import Trust
    from covey_flower.folder_check import Finding
    from covey_flower.trial import Tried

deploy = CommandGroup("deploy", help="Prepare, check and try a federation on Flower.")


ROW = CommandRow("covey_flower.cli:deploy", str(deploy.help), OPERATION)


@dataclass(frozen=True, slots=True)
class FederationWritten:
    """A federation's folder; its README.md says what to start where.

    Attributes:
        address: of the server, as nodes see it.
        nodes: folders by name.
    """

    folder: Path
    address: str
    nodes: Mapping[str, Path]


@deploy.command("init")
@argument("config", type=PATH, help="Settings in TOML.")
@click.option("--out", type=PATH, required=True, help="The federation's new folder.")
@click.option("--node", "nodes", multiple=True, required=True, help="A client's name; repeatable.")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="The server's name or address, as nodes see it.",
)
@click.option("--port", type=int, default=8000, show_default=True, help="The server's only port.")
def init_folder(
    config: Path, out: Path, nodes: Sequence[str], host: str, port: int
) -> FederationWritten:
    """Write all that is started on the server and carried to the nodes."""
    from covey_flower.deployment import DeploymentPlan, write_federation

    plan = DeploymentPlan(tuple(nodes), host, port)
    folder = write_federation(config, out, plan, datetime.now(UTC))
    folders = {name: folder / "nodes" / name for name in plan.nodes}
    return FederationWritten(folder, plan.address, folders)


@dataclass(frozen=True, slots=True)
class NodesListed:
    """Which nodes may take part in a federation, and what is left to do."""

    nodes: Sequence[str]
    next: str


@deploy.command("add")
@argument("folder", type=PATH, help="The federation's folder.")
@argument("name", help="A client's name.")
def add(folder: Path, name: str) -> NodesListed:
    """Write the folder of one more node, and put it on the list."""
    from covey_flower.deployment import list_node

    listed, own = list_node(folder, name), folder / "nodes" / name
    return NodesListed(
        listed,
        f"Run {folder / 'register.sh'}, carry {own} to its machine, and start start.sh there. With "
        f"privacy.secure_sums, carry its file peers to all other nodes, too.",
    )


@deploy.command("remove")
@argument("folder", type=PATH, help="The federation's folder.")
@argument("name", help="A client's name.")
def remove(folder: Path, name: str) -> NodesListed:
    """Take a node off the list: it takes part in no further round."""
    from covey_flower.deployment import list_node

    listed = list_node(folder, name, removes=True)
    forget = f"Models stay trained on its data: `covey forget RUN {name}` lets it leave a run."
    return NodesListed(listed, forget)


@dataclass(frozen=True, slots=True)
class FederationChecked:
    """What is missing, wrong or risky in a federation's folder.

    Attributes:
        valid: no finding is an error.
        trust: who has to trust whom for what, as no setting enforces it.
    """

    valid: bool
    findings: Sequence[Finding]
    trust: Sequence[Trust]


@deploy.command("check")
@argument("folder", type=PATH, help="A federation's folder, or that of one node.")
def check_folder(folder: Path) -> Iterator[FederationChecked]:
    """Look for what is missing, wrong or risky; exit code 1 if something is wrong."""
    from covey_flower.folder_check import check, trust_in

    findings = check(folder, datetime.now(UTC))
    is_valid = all(finding.level != "error" for finding in findings)
    yield FederationChecked(is_valid, findings, trust_in(folder))
    fail_if(not is_valid)


@deploy.command("try")
@click.option(
    "--out",
    type=PATH,
    help="A new folder, in which all is kept. Default: a temporary one, which is deleted.",
)
def try_it(out: Path | None) -> Tried:
    """Play a federation on this machine: a server, three nodes over TLS, one leaves.

    Nothing has to be there before, and every process has ended afterwards, after Ctrl-C too.
    """
    from covey_flower.trial import try_federation

    def report(step: str) -> None:
        console.print(step, soft_wrap=True)

    if out is not None:
        return try_federation(out.absolute(), report)
    with TemporaryDirectory(prefix="covey-try-") as folder:
        return replace(try_federation(Path(folder) / "all", report), folder=None, proof=None)
