"""How a federation is: what its server says of nodes and runs."""

import json
import os
import shutil
import subprocess
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from covey.bounded_io import read_bounded
from covey.deploy.plan import CONNECTION, SWITCHES
from covey.deploy.scripts import DAMAGE, connection_of
from covey.errors import ConfigError, RunError

__all__ = ["NoAnswerError", "Node", "Run", "Status", "nodes_of", "status_of"]

PATIENCE = 60.0  # seconds that `flwr` has, most of which it takes to start


class NoAnswerError(RunError):
    """The server of a federation does not answer."""


@dataclass(frozen=True, slots=True)
class Node:
    """One node.

    Attributes:
        name: None if its key was not registered by register.sh.
        id: Flower's, for as long as the server knows the key; None: not registered.
        state: online, offline, registered (never seen) or not registered.
        since: when that began, UTC; None where nobody knows.
    """

    name: str | None
    id: str | None
    state: str
    since: str | None


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a Flower app; its state is Flower's word."""

    id: str
    app: str
    state: str
    detail: str
    elapsed: float


@dataclass(frozen=True, slots=True)
class Status:
    """What the server says.

    Attributes:
        problem: why nothing is known; empty if the server answered.
    """

    address: str
    problem: str
    nodes: tuple[Node, ...] = ()
    runs: tuple[Run, ...] = ()


def status_of(folder: Path) -> Status:
    """Ask the server of a federation for its nodes and runs.

    Raises:
        RunError: the folder does not say where the server is.
        ConfigError: Flower is not installed here.
    """
    address = connection_of(folder)["address"]
    try:
        return Status(address, "", nodes_of(folder), _runs_of(folder))
    except NoAnswerError as problem:
        return Status(address, str(problem))


def nodes_of(folder: Path) -> tuple[Node, ...]:
    """Ask the server for its nodes; also named are those that it does not know.

    Raises:
        NoAnswerError: it does not answer.
        ConfigError: Flower is not installed here.
    """
    names = _registered(folder)
    found = [
        _node(each, names) for each in _asked(folder, "supernode", "list")["nodes"]
    ]
    there = {node.name for node in found}
    invited = (path.name for path in (folder / "nodes").glob("*") if path.is_dir())
    absent = [Node(n, None, "not registered", None) for n in invited if n not in there]
    return tuple(sorted([*found, *absent], key=lambda node: node.name or "~"))


def _runs_of(folder: Path) -> tuple[Run, ...]:
    return tuple(
        Run(
            str(each["run-id"]),
            str(each["fab-id"]),
            str(each["status"]),
            str(each["status-details"]),
            float(each["elapsed"]),
        )
        for each in _asked(folder, "list")["runs"]
    )


def _environment(folder: Path) -> dict[str, str]:
    """Return the environment in which `flwr` speaks with a folder's server."""
    home = {"FLWR_HOME": str((folder / "flwr").absolute())}
    return {**os.environ, **SWITCHES, **home}


def _asked(folder: Path, *words: str) -> dict[str, Any]:
    """Return what `flwr` answers, which tells success by its answer alone."""
    try:
        done = subprocess.run(  # noqa: S603 - no word is from elsewhere
            [_flwr(), *words, CONNECTION, "--format", "json"],
            env=_environment(folder),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _unanswered(folder, f"nothing in {PATIENCE:.0f} seconds.") from None
    try:
        told = json.loads(done.stdout)
    except ValueError:
        raise _unanswered(folder, (done.stderr or done.stdout).strip()) from None
    if not told.get("success"):
        raise _unanswered(folder, str(told.get("error-message", told)).strip())
    return told


def _flwr() -> str:
    """Return Flower's command: on the PATH, or beside this Python."""
    beside = sysconfig.get_path("scripts")
    program = shutil.which("flwr") or shutil.which("flwr", path=beside)
    if program is None:
        raise ConfigError(
            "Expected Flower's command flwr, found none. Run pip install 'covey[flower]'."
        )
    return program


def _unanswered(folder: Path, problem: str) -> NoAnswerError:
    last = problem.splitlines()[-1] if problem else "no reason."
    return NoAnswerError(
        f"Expected the server at {connection_of(folder)['address']} to answer, found: "
        f"{last} Start server.sh, or look with `covey deploy check` at what is in its way."
    )


def _registered(folder: Path) -> dict[str, str]:
    """Return the names by node id, as register.sh kept them."""
    kept = sorted((folder / "flwr" / "registered").glob("*.json"))
    return {_node_id(path): path.stem for path in kept}


def _node_id(path: Path) -> str:
    try:
        return str(json.loads(read_bounded(path))["node-id"])
    except DAMAGE as problem:
        raise RunError(
            f"{path} must hold the node's id, as register.sh wrote it, but: {problem!r}. "
            f"Restore the file, or register the node again."
        ) from None


def _node(listed: Mapping[str, Any], names: Mapping[str, str]) -> Node:
    key = {"online": "online-at", "offline": "offline-at"}.get(listed["status"])
    since = listed.get(key or "created-at")
    return Node(
        names.get(str(listed["node-id"])),
        str(listed["node-id"]),
        listed["status"],
        None if since in (None, "N/A") else str(since),
    )
