"""Looking at a federation: its folder and machines before it is started, its state afterwards."""

import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from covey.base.errors import ConfigError, CoveyError, RunError
from covey.base.files import permissions_of_others, read_bounded, read_text
from covey.build.training import algorithm_of, masks_told, summed_up
from covey.config.settings import Config
from covey.deploy.folder import (
    CONNECTION,
    SWITCHES,
    bounds_newcomers,
    federation_settings,
    organisation_findings,
)
from covey.deploy.keys import Finding, authority_findings, error, fine, server_findings, warning
from covey.deploy.node import (
    DAMAGE,
    Script,
    connection_of,
    data_findings,
    host_and_port,
    settings_findings,
)

FLOWER = ((1, 41), (1, 43))
"""The first version of Flower that covey is made for, and the first that it is not."""

FORK_SERVER = "covey.flower.fork_server"

PATIENCE = 3.0  # seconds that a port has to answer


def software_findings(programs: Sequence[str]) -> Iterator[Finding]:
    """Look for Flower, and for the programs that it starts by name."""
    yield fine("covey", f"version {version('covey')}; use the same on every machine")
    yield _flower()
    missing = [name for name in programs if shutil.which(name) is None]
    if missing:
        yield error(
            "PATH",
            f"expected Flower's programs, found no {', '.join(missing)}. Activate the "
            f"environment that covey is installed in before the scripts are started.",
        )
    else:
        yield fine("PATH", f"{', '.join(programs)} are there")


def _flower() -> Finding:
    least, below = (".".join(map(str, each)) for each in FLOWER)
    wanted = f"expected flwr >= {least}, < {below}"
    try:
        found = version("flwr")
    except PackageNotFoundError:
        return error("flwr", f"{wanted}, found none. Run pip install 'covey[flower]'.")
    numbers = tuple(int(each) for each in found.split(".")[:2])
    if FLOWER[0] <= numbers < FLOWER[1]:
        return fine("flwr", f"version {found}; use the same on every machine")
    return error("flwr", f"{wanted}, found {found}. Run pip install 'covey[flower]'.")


def switch_findings(script: Script) -> Iterator[Finding]:
    """Look for the environment that keeps Flower from calling others."""
    missing = [
        f"{name}={value}"
        for name, value in SWITCHES.items()
        if f"{name}={value}" not in script.words
    ]
    if missing:
        yield error(
            script.path.name,
            f"expected it to export {', '.join(SWITCHES)}, found no "
            f"{', '.join(missing)}. Add `export {missing[0]}`.",
        )
    else:
        yield fine(
            script.path.name, "telemetry, update checks and installation at run time are off"
        )


def fork_server_finding(script: Script) -> Finding:
    """Say what a node keeps running, that messages cost it less."""
    about = "fork server"
    if FORK_SERVER not in script.words:
        return warning(
            about,
            f"expected {script.path.name} to start {FORK_SERVER}, found no such line: "
            "every message costs some seconds of processor time. Add the line that `covey "
            "deploy init` writes, or go on: the results are the same.",
        )
    if sys.platform != "linux":
        return fine(about, "none but on Linux: Flower loads all anew for every message")
    return fine(
        about,
        "one process that has loaded all answers messages, in 0.35 GB that stay; restart "
        "the node after covey or Flower was installed anew",
    )


def permission_findings(private: Sequence[Path]) -> list[Finding]:
    """Look whether anybody but the owner can read what is private."""
    modes = {path: path.stat().st_mode & 0o777 for path in private}
    found = [
        error(
            path.name,
            f"expected {path} for its owner alone, found mode {mode:04o}. Run "
            f"chmod go= {path}; if others may have read it, make a new one.",
        )
        for path, mode in modes.items()
        if permissions_of_others(mode)
    ]
    kept = fine("permissions", f"{len(private)} private files and folders are private")
    return found or [kept]


def knock(address: str, authority: Path | None) -> Finding | None:
    """Return what answers at an address, None if nothing does.

    Args:
        address: HOST:PORT.
        authority: whose certificate the server must show; None: no encryption.
    """
    host, port = host_and_port(address)
    try:
        with socket.create_connection((host, port), timeout=PATIENCE) as plain:
            if authority is not None:
                context = ssl.create_default_context(cafile=authority)
                context.wrap_socket(plain, server_hostname=host).close()
    except (ssl.SSLError, ConnectionResetError) as problem:
        return error(
            address,
            f"expected the server with a certificate of {authority}, found: {problem}. "
            f"Another program has the port, or the certificates are of another folder.",
        )
    except socket.gaierror as problem:
        return error(
            address,
            f"expected a host that can be looked up, found: {problem}. Correct the "
            f"name, or this machine's DNS.",
        )
    except OSError:
        return None
    return fine(address, "the server answers")


def node_port_findings(port: int) -> Iterator[Finding]:
    """Look whether a node can have its port."""
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("127.0.0.1", port))
        except OSError as problem:
            yield warning(
                f"port {port}",
                f"expected it free for the node's own processes, found: {problem}. "
                f"Fine if the node runs already; else start it with --port OTHER.",
            )
        else:
            yield fine(f"port {port}", "free")


SERVER_PROGRAMS = ("flower-superlink", "flower-superexec", "flwr-serverapp", "flwr")
NODE_PROGRAMS = ("flower-supernode", "flower-superexec", "flwr-clientapp")
LOCAL = ("127.0.0.1", "::1", "localhost")


def check(folder: Path, now: datetime) -> tuple[Finding, ...]:
    """Look at all that can be looked at without starting anything.

    Args:
        folder: of `covey deploy init`, or of one node of it.
        now: with a time zone.

    Raises:
        RunError: it is neither.
    """
    if (folder / "server.sh").is_file():
        return tuple(_server(folder.absolute(), now))
    if (folder / "node.toml").is_file():
        return tuple(_node(folder.absolute(), now))
    raise RunError(
        f"{folder} must be the folder of a federation or of one of its nodes, found "
        f"neither server.sh nor node.toml. Give what `covey deploy init` wrote."
    )


def _server(folder: Path, now: datetime) -> Iterator[Finding]:
    script, connection = Script.read(folder / "server.sh"), connection_of(folder)
    host, _ = host_and_port(connection["address"])
    authority = folder / "certificates" / "ca.crt"
    yield from software_findings(SERVER_PROGRAMS)
    yield from switch_findings(script)
    yield from switch_findings(Script.read(folder / "flwr.sh"))
    settings, about_settings = _settings(folder / "covey.toml")
    yield from about_settings
    if settings is not None:
        yield from _merge(settings)
        yield from _masks(Config.of(settings))
        yield from organisation_findings(settings, _names(folder))
    yield _place(folder)
    if script.has("--insecure"):
        yield _insecure()
    else:
        yield from authority_findings(authority, now)
        yield from server_findings(authority.parent, host, now)
    yield from permission_findings(_private(folder))
    yield _database(script)
    yield _exposure(script)
    answer = knock(connection["address"], None if script.has("--insecure") else authority)
    yield answer or fine(connection["address"], "nothing is there yet: start server.sh")


def _node(folder: Path, now: datetime) -> Iterator[Finding]:
    script = Script.read(folder / "start.sh")
    told, about_node = settings_findings(folder / "node.toml")
    settings, about_settings = _settings(folder / (told.config if told else "covey.toml"))
    authority = None if script.has("--insecure") else folder / "ca.crt"
    address = script.value("--superlink")
    yield from software_findings(NODE_PROGRAMS)
    yield from switch_findings(script)
    yield fork_server_finding(script)
    yield from (*about_settings, *about_node)
    if settings is not None:
        yield from _masks(Config.of(settings))
    if told is not None:
        yield from data_findings(told, settings, folder)
    if authority is None:
        yield _insecure()
    else:
        yield from authority_findings(authority, now)
    yield from permission_findings(_private(folder))
    yield from node_port_findings(int(script.value("--port")))
    yield knock(address, authority) or warning(
        address, "expected the server, found no answer. Start it: the node will wait."
    )


def _settings(path: Path) -> tuple[dict[str, Any] | None, list[Finding]]:
    """Read the federation's settings: what they say, and what is wrong with them."""
    try:
        settings = federation_settings(path)
    except CoveyError as problem:
        return None, [error(path.name, str(problem))]
    if settings["secrets"]["source"] == "seeded":
        found = (
            "expected secrets.source = 'os', found 'seeded': whoever has these settings, "
            "so every node, can recompute what hides clients. For experiments only."
        )
        return settings, [warning(path.name, found)]
    return settings, [fine(path.name, "the settings are valid")]


OPEN_SUMS = (
    "expected privacy.secure_sums = true, found false: the server sees each client's own "
    "sums, which give the features of few records away. Set it, with method.initialisation "
    "= 'random' or one cluster, or trust the server."
)


def _merge(settings: dict[str, Any]) -> Iterator[Finding]:
    """Warn of a mean that one node can turn round; noise on sums needs the mean.

    Sums are means as well, and a cluster is its newcomers' where anybody may enter it.
    """
    config = Config.of(settings)
    if bounds_newcomers(config) and config.method.max_newcomers == 0:
        found = (
            "expected method.max_newcomers above 0, found 0: nodes that lie can all choose "
            "a small cluster and be its majority. Leave it out, or trust every node."
        )
        yield warning("method", found)
    if algorithm_of(config).subtracts:
        found = (
            "expected models that no client moves far, found heads that are solved from "
            "sums: who announces many examples counts for as many, and no median is taken "
            "of sums. Trust every node, or know how many examples it may have."
        )
        yield warning("method", found)
        if not settings["privacy"]["secure_sums"]:
            yield warning("privacy", OPEN_SUMS)
    elif settings["merge"]["name"] == "mean" and settings["privacy"]["client_noise"] == 0:
        found = (
            "expected a robust merge, found merge.name = 'mean': a few nodes that lie "
            "can turn the model round. Leave the section merge out for the geometric "
            "median, or trust every node."
        )
        yield warning("merge", found)


def _masks(config: Config) -> Iterator[Finding]:
    """Say against whom masks protect, where there are any."""
    if told := masks_told(config):
        open_ones = summed_up(config) & {"updates", "counts"}
        yield warning("masks", told) if open_ones else fine("masks", told)


def _names(folder: Path) -> list[str]:
    """Return the nodes that the app lets in; none where it cannot be read."""
    try:
        names = _app(folder)["names"]
    except DAMAGE:
        return []
    return [each for each in str(names).split(",") if each]


def _app(folder: Path) -> dict[str, Any]:
    path = folder / "app" / "pyproject.toml"
    told = tomllib.loads(read_text(path))
    return told["tool"]["flwr"]["app"]["config"]


def _place(folder: Path) -> Finding:
    """Look whether the app still means this folder."""
    path = folder / "app" / "pyproject.toml"
    try:
        meant = Path(_app(folder)["config"]).parent
    except DAMAGE as problem:
        return error(
            "app", f"expected a Flower app in {path.parent}, found: {problem!r}. Restore it."
        )
    if meant != folder:
        return error(
            "app",
            f"expected paths into {folder}, found {meant}: the folder was moved. Move it "
            f"back, or correct app/pyproject.toml and flwr/config.toml.",
        )
    return fine("app", "its paths lead here")


def _private(folder: Path) -> list[Path]:
    """Return what must be private and is there; a key may have been carried away."""
    files = [
        *folder.glob("certificates/*.key"),
        *folder.glob("nodes/*/key"),
        *folder.glob("nodes/*/node.toml"),
        folder / "key",
        folder / "node.toml",
    ]
    return [folder, *(path for path in files if path.is_file())]


def _database(script: Script) -> Finding:
    if script.has("--database"):
        return warning(
            script.path.name,
            "expected a server in memory, found --database: every client's updates pass "
            "through that file, and no denial covers it. Comment it out again, or say so.",
        )
    return fine(script.path.name, "the server is in memory; updates stay off the disk")


def _exposure(script: Script) -> Finding:
    host = script.value("--host")
    if host in LOCAL:
        return fine(script.path.name, "only this machine can reach the server")
    return warning(
        script.path.name,
        f"expected a port that only nodes can reach, found --host {host}: Flower lets "
        f"whoever reaches it register keys and start apps. See README.md for a firewall.",
    )


def _insecure() -> Finding:
    return warning(
        "insecure",
        "expected TLS and node keys, found --insecure: anybody can join and read. For "
        "trying things out on one machine only.",
    )


STATUS_PATIENCE = 60.0  # seconds that `flwr` has, most of which it takes to start


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
    found = [_status_of_node(each, names) for each in _asked(folder, "supernode", "list")["nodes"]]
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
            timeout=STATUS_PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _unanswered(folder, f"nothing in {STATUS_PATIENCE:.0f} seconds.") from None
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


def _status_of_node(listed: Mapping[str, Any], names: Mapping[str, str]) -> Node:
    key = {"online": "online-at", "offline": "offline-at"}.get(listed["status"])
    since = listed.get(key or "created-at")
    return Node(
        names.get(str(listed["node-id"])),
        str(listed["node-id"]),
        listed["status"],
        None if since in (None, "N/A") else str(since),
    )
