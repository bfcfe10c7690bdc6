"""Looking at a federation: its folder and machines before it is started, its state afterwards."""

import ipaddress
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from covey.base.errors import ConfigError, CoveyError, DataError, RunError
from covey.base.files import file_hash, permissions_of_others, read_bounded
from covey.build.training import masks_told, summed_up
from covey.components.parts import find
from covey.config.settings import Config
from covey.data.arrays import read_client
from covey.data.population import read_organisations
from covey.deploy.folder import (
    CONNECTION,
    SWITCHES,
    Declaration,
    bounds_newcomers,
    federation_settings,
    least_organisations,
    organisation_problem,
)
from covey.deploy.node import NodeFile

FLOWER = ((1, 41), (1, 43))
"""The first version of Flower that covey is made for, and the first that it is not."""

_SERVER_PROGRAMS = ("flower-superlink", "flower-superexec", "flwr-serverapp", "flwr")
_NODE_PROGRAMS = ("flower-supernode", "flower-superexec", "flwr-clientapp")
_PATIENCE = 3.0  # seconds that a port has to answer


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        level: an error keeps the federation from working, or from being what its
            folder promises; a warning is a choice to be aware of.
    """

    level: Literal["ok", "warning", "error"]
    about: str
    detail: str


def _fine(about: str, detail: str) -> Finding:
    return Finding("ok", about, detail)


def _warning(about: str, detail: str) -> Finding:
    return Finding("warning", about, detail)


def _error(about: str, detail: str) -> Finding:
    return Finding("error", about, detail)


def check(folder: Path, now: datetime) -> tuple[Finding, ...]:
    """Look at all that can be looked at without starting anything.

    Args:
        folder: of `covey deploy init`, or of one node of it.
        now: with a time zone.

    Raises:
        RunError: it is neither.
    """
    declared = Declaration.read(folder)
    look = _server if declared.folder else _node
    return tuple(look(folder.absolute(), declared, now))


def _server(folder: Path, declared: Declaration, now: datetime) -> Iterator[Finding]:
    plan = declared.plan
    authority = folder / "certificates" / "ca.crt"
    yield from _software(_SERVER_PROGRAMS)
    scripts = _scripts(folder, declared)
    yield from scripts.values()
    settings, finding = _settings(folder / "covey.toml")
    yield finding
    if settings is not None:
        yield from _trust(settings)
        yield from _masks(Config.of(settings))
        yield from _organisations(settings, plan.nodes)
    if not (folder / "app" / "pyproject.toml").is_file():
        yield _error("app", f"expected a Flower app in {folder / 'app'}, found none. Restore it.")
    elif Path(declared.folder) != folder:
        yield _error(
            "app",
            f"expected paths into {folder}, found {declared.folder}: the folder was moved. "
            f"Move it back, or write a new one with `covey deploy init`.",
        )
    else:
        yield _fine("app", "its paths lead here")
    if plan.insecure:
        yield _insecure()
    else:
        yield from authority_findings(authority, now)
        yield from server_findings(authority.parent, plan.host, now)
    yield from _permissions(folder)
    if scripts["server.sh"].level == "ok":
        yield from _exposure(plan.bind, is_local=plan.is_local)
    answer = knock(plan.address, None if plan.insecure else authority)
    yield answer or _fine(plan.address, "nothing is there yet: start server.sh")


def _node(folder: Path, declared: Declaration, now: datetime) -> Iterator[Finding]:
    plan = declared.plan
    yield from _software(_NODE_PROGRAMS)
    scripts = _scripts(folder, declared)
    yield from scripts.values()
    if scripts["start.sh"].level == "ok":
        linux = sys.platform == "linux"  # what a node keeps running, that messages cost it less
        yield _fine("fork server", _FORK_SERVER if linux else _NO_FORK_SERVER)
    try:
        node = NodeFile.read(folder / "node.toml")
        finding = _fine("node.toml", f"complete, for {node.name}")
    except ConfigError as problem:
        node, finding = None, _error("node.toml", str(problem))
    settings, about_settings = _settings(folder / (node.config if node else "covey.toml"))
    yield about_settings
    yield finding
    if settings is not None:
        yield from _masks(Config.of(settings))
    if node is not None:
        yield _examples(node, settings, folder)
    if plan.insecure:
        yield _insecure()
    else:
        yield from authority_findings(folder / "ca.crt", now)
    yield from _permissions(folder)
    yield node_port_finding(declared.node_port)
    yield knock(plan.address, None if plan.insecure else folder / "ca.crt") or _warning(
        plan.address, "expected the server, found no answer. Start it: the node will wait."
    )


def _software(programs: Sequence[str]) -> Iterator[Finding]:
    """Look for Flower, and for the programs that it starts by name."""
    yield _fine("covey", f"version {version('covey')}; use the same on every machine")
    least, below = (".".join(map(str, numbers)) for numbers in FLOWER)
    wanted, remedy = f"expected flwr >= {least}, < {below}", "Run pip install 'covey[flower]'."
    try:
        installed = version("flwr")
    except PackageNotFoundError:
        yield _error("flwr", f"{wanted}, found none. {remedy}")
    else:
        numbers = tuple(map(int, installed.split(".")[:2]))
        if FLOWER[0] <= numbers < FLOWER[1]:
            yield _fine("flwr", f"version {installed}; use the same on every machine")
        else:
            yield _error("flwr", f"{wanted}, found {installed}. {remedy}")
    missing = [name for name in programs if shutil.which(name) is None]
    if missing:
        yield _error(
            "PATH",
            f"expected Flower's programs, found no {', '.join(missing)}. Activate the "
            f"environment that covey is installed in before the scripts are started.",
        )
    else:
        yield _fine("PATH", f"{', '.join(programs)} are there")


def _scripts(folder: Path, declared: Declaration) -> dict[str, Finding]:
    """Look whether scripts are as they were written: of others nothing is known."""
    findings: dict[str, Finding] = {}
    for name in ("server.sh", "flwr.sh") if declared.folder else ("start.sh",):
        try:
            same = file_hash(folder / name) == declared.scripts.get(name)
        except OSError as problem:
            findings[name] = _error(
                name,
                f"expected the script that covey wrote, found: {problem}. Write the folder "
                f"again with `covey deploy init`.",
            )
            continue
        off = "telemetry, update checks and installation at run time are off"
        findings[name] = _fine(name, off) if same else _error(name, _CHANGED)
    return findings


_FORK_SERVER = (
    "one process that has loaded all answers messages, in 0.35 GB that stay; restart the node "
    "after covey or Flower was installed anew"
)
_NO_FORK_SERVER = "none but on Linux: Flower loads all anew for every message"
_CHANGED = (
    "expected it as covey wrote it, found it changed: it is not known what it sends to others, "
    "who can reach what it starts, and what stays on the disk. Write the folder again with "
    "`covey deploy init`; options are words behind the script's name."
)


def _exposure(bind: str, *, is_local: bool) -> Iterator[Finding]:
    yield _fine(
        "server.sh",
        "the server is in memory, and updates stay off the disk, unless it is started with "
        "--database: then every client's updates pass through that file, and no denial covers it",
    )
    if is_local:
        yield _fine("server.sh", "only this machine can reach the server")
    else:
        yield _warning(
            "server.sh",
            f"expected a port that only nodes can reach, found --host {bind}: Flower lets "
            f"whoever reaches it register keys and start apps. See README.md for a firewall.",
        )


def _insecure() -> Finding:
    return _warning(
        "insecure",
        "expected TLS and node keys, found --insecure: anybody can join and read. For "
        "trying things out on one machine only.",
    )


def _settings(path: Path) -> tuple[dict[str, Any] | None, Finding]:
    """Read the federation's settings: what they say, and whether they are right."""
    try:
        settings = federation_settings(path)
    except CoveyError as problem:
        return None, _error(path.name, str(problem))
    if settings["secrets"]["source"] == "seeded":
        return settings, _warning(
            path.name,
            "expected secrets.source = 'os', found 'seeded': whoever has these settings, "
            "so every node, can recompute what hides clients. For experiments only.",
        )
    return settings, _fine(path.name, "the settings are valid")


_OPEN_SUMS = (
    "expected privacy.secure_sums = true, found false: the server sees each client's own "
    "sums, which give the features of few records away. Set it, with method.initialisation "
    "= 'random' or one cluster, or trust the server."
)


def _trust(settings: dict[str, Any]) -> Iterator[Finding]:
    """Warn of a mean that one node can turn round; noise on sums needs the mean.

    Sums are means as well, and a cluster is its newcomers' where anybody may enter it.
    """
    config = Config.of(settings)
    if bounds_newcomers(config) and not getattr(config.method, "max_newcomers", 0.0):
        found = (
            "expected method.max_newcomers above 0, found 0: nodes that lie can all choose "
            "a small cluster and be its majority. Leave it out, or trust every node."
        )
        yield _warning("method", found)
    if config.method.subtracts:
        found = (
            "expected models that no client moves far, found heads that are solved from "
            "sums: who announces many examples counts for as many, and no median is taken "
            "of sums. Trust every node, or know how many examples it may have."
        )
        yield _warning("method", found)
        if not settings["privacy"]["secure_sums"]:
            yield _warning("privacy", _OPEN_SUMS)
    elif settings["aggregation"]["name"] == "mean" and settings["privacy"]["client_noise"] == 0:
        found = (
            "expected a robust aggregation, found aggregation.name = 'mean': a few nodes that "
            "lie can turn the model round. Leave the section aggregation out for the geometric "
            "median, or trust every node."
        )
        yield _warning("aggregation", found)


def _masks(config: Config) -> Iterator[Finding]:
    """Say against whom masks protect, where there are any."""
    if protection := masks_told(config):
        bare = summed_up(config) & {"updates", "counts"}
        yield _warning("masks", protection) if bare else _fine("masks", protection)


def _organisations(settings: dict[str, Any], nodes: Sequence[str]) -> Iterator[Finding]:
    """Look whether the file of organisations says of every node what the aggregation needs."""
    path, about = settings["population"]["organisations"], "organisations"
    if not path:
        if (least := least_organisations(settings)) > 1:
            yield _error(
                about,
                f"expected population.organisations, as aggregation.min_organisations = "
                f"{least} needs it, found none: no node would be let in. Name the file.",
            )
        return
    try:
        problem = organisation_problem(settings, nodes, read_organisations(Path(path)))
    except CoveyError as error:
        problem = str(error)
    known = "it is known whose client each node is"
    yield _error(about, problem) if problem else _fine(about, known)


def _examples(node: NodeFile, settings: dict[str, Any] | None, folder: Path) -> Finding:
    """Look for a node's examples; a relative path starts at its folder."""
    if node.data:
        try:
            examples = read_client(folder / node.data)
        except DataError as problem:
            return _error("data", str(problem))
        return _fine("data", f"{len(examples):,} examples in {folder / node.data}")
    data = settings["data"]["name"] if settings is not None else ""
    # only such data are shared out among clients with numbers for names
    if settings is not None and ":" not in data and find("data", data, "data.name").simulates:
        last = settings["population"]["clients"] - 1
        if node.name not in (f"client-{index:05}" for index in range(last + 1)):
            return _error(
                "data",
                f"expected an .npz file, or the name of a simulated client, client-00000 to "
                f"client-{last:05}, found neither: {node.name!r}. Set data in node.toml.",
            )
    return _warning(
        "data",
        f"expected an .npz file, found none named: the node plays the simulated client "
        f"{node.name!r}. Set data in node.toml for real examples.",
    )


def _permissions(folder: Path) -> Iterator[Finding]:
    """Look whether anybody but the owner can read what is private and still there."""
    patterns = ("certificates/*.key", "nodes/*/key", "nodes/*/node.toml", "key", "node.toml")
    private = [folder, *(path for pattern in patterns for path in folder.glob(pattern))]
    modes = {path: path.stat().st_mode & 0o777 for path in private}
    open_ones = {path: mode for path, mode in modes.items() if permissions_of_others(mode)}
    for path, mode in open_ones.items():
        yield _error(
            path.name,
            f"expected {path} for its owner alone, found mode {mode:04o}. Run "
            f"chmod go= {path}; if others may have read it, make a new one.",
        )
    if not open_ones:
        yield _fine("permissions", f"{len(private)} private files and folders are private")


def knock(address: str, authority: Path | None) -> Finding | None:
    """Return what answers at an address, None if nothing does.

    Args:
        address: HOST:PORT.
        authority: whose certificate the server must show; None: no encryption.
    """
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE) as plain:
            if authority is not None:
                context = ssl.create_default_context(cafile=authority)
                context.wrap_socket(plain, server_hostname=host.strip("[]")).close()
    except (ssl.SSLError, ConnectionResetError) as problem:
        return _error(
            address,
            f"expected the server with a certificate of {authority}, found: {problem}. "
            f"Another program has the port, or the certificates are of another folder.",
        )
    except socket.gaierror as problem:
        return _error(
            address,
            f"expected a host that can be looked up, found: {problem}. Correct the "
            f"name, or this machine's DNS.",
        )
    except OSError:
        return None
    return _fine(address, "the server answers")


def node_port_finding(port: int) -> Finding:
    """Look whether a node can have its port."""
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("127.0.0.1", port))
        except OSError as problem:
            return _warning(
                f"port {port}",
                f"expected it free for the node's own processes, found: {problem}. "
                f"Fine if the node runs already; else start it with --port OTHER.",
            )
    return _fine(f"port {port}", "free")


_SOON = timedelta(days=30)
_AGAIN = "Write a new folder with `covey deploy init`, or replace the file."


def authority_findings(path: Path, now: datetime) -> Iterator[Finding]:
    """Look at the certificate by which the server is known."""
    try:
        yield _dates(path, _certificate(path), now)
    except RunError as problem:
        yield _error(path.name, str(problem))


def server_findings(folder: Path, host: str, now: datetime) -> Iterator[Finding]:
    """Look at the server's own certificate and key.

    Args:
        folder: with ca.crt, server.pem and server.key.
        host: what the nodes call the server.
        now: with a time zone.
    """
    path = folder / "server.pem"
    try:
        server = _certificate(path)
    except RunError as problem:
        yield _error(path.name, str(problem))
        return
    yield _dates(path, server, now)
    yield _names(path, server, host)
    try:
        server.verify_directly_issued_by(_certificate(folder / "ca.crt"))
    except RunError:
        pass  # `authority_findings` says so
    except (ValueError, TypeError, InvalidSignature):
        yield _error(
            path.name,
            f"expected it to be signed by ca.crt, found the signature of another. {_AGAIN}",
        )
    else:
        yield _fine(path.name, "is signed by ca.crt")
    path = folder / "server.key"
    try:
        key = load_pem_private_key(read_bounded(path), password=None)
    except (OSError, ValueError, TypeError) as problem:
        yield _error(path.name, f"expected a private key in {path}, found: {problem}. {_AGAIN}")
        return
    if key.public_key() == server.public_key():
        yield _fine(path.name, "is the key of server.pem")
    else:
        yield _error(path.name, f"expected the key of server.pem, found another. {_AGAIN}")


def _certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(read_bounded(path))
    except (OSError, ValueError) as problem:
        raise RunError(f"expected a certificate in {path}, found: {problem}. {_AGAIN}") from None


def _dates(path: Path, certificate: x509.Certificate, now: datetime) -> Finding:
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if not begin <= now <= end:
        return _error(
            path.name,
            f"expected it to hold today, {now:%Y-%m-%d}, found {begin:%Y-%m-%d} to "
            f"{end:%Y-%m-%d}. Set the clock, or: {_AGAIN}",
        )
    life = f"holds until {end:%Y-%m-%d}"
    if end - now < _SOON:
        return _warning(path.name, f"expected it to hold a month more, {life}. {_AGAIN}")
    return _fine(path.name, life)


def _names(path: Path, server: x509.Certificate, host: str) -> Finding:
    try:
        names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        names = x509.SubjectAlternativeName([])
    covered = {
        *names.get_values_for_type(x509.DNSName),
        *map(str, names.get_values_for_type(x509.IPAddress)),
    }
    with suppress(ValueError):  # a name stays as it is written
        host = str(ipaddress.ip_address(host))
    if {host, "127.0.0.1"} <= covered:
        return _fine(path.name, f"is for {', '.join(sorted(covered))}")
    return _error(
        path.name,
        f"expected the names {host}, for the nodes, and 127.0.0.1, for the server's "
        f"own processes, found {', '.join(sorted(covered)) or 'none'}. {_AGAIN}",
    )


_STATUS_PATIENCE = 60.0  # seconds that `flwr` has, most of which it takes to start


class NoAnswerError(RunError):
    """The server of a federation does not answer."""


@dataclass(frozen=True, slots=True)
class Node:
    """One node.

    Attributes:
        name: None if its key was not registered by register.sh.
        id: Flower's, for as long as the server knows the key; None: not registered.
        state: online, offline, registered (never seen) or not registered.
        since: when that began, UTC; None: not known.
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
        problem: why there is no answer; empty if the server answered.
    """

    address: str
    problem: str
    nodes: tuple[Node, ...] = ()
    runs: tuple[Run, ...] = ()


def status_of(folder: Path) -> Status:
    """Ask the server of a federation for its nodes and runs.

    Raises:
        RunError: the folder is none that `deploy init` wrote.
        ConfigError: Flower is not installed here.
    """
    address = Declaration.read(folder).plan.address
    try:
        nodes = nodes_of(folder)
        runs = tuple(
            Run(
                str(run["run-id"]),
                str(run["fab-id"]),
                str(run["status"]),
                str(run["status-details"]),
                float(run["elapsed"]),
            )
            for run in _ask(folder, "list")["runs"]
        )
    except NoAnswerError as problem:
        return Status(address, str(problem))
    return Status(address, "", nodes, runs)


def nodes_of(folder: Path) -> tuple[Node, ...]:
    """Ask the server for its nodes; also named are those that it does not know.

    Raises:
        NoAnswerError: it does not answer.
        ConfigError: Flower is not installed here.
    """
    names = {  # by node id, as register.sh kept them
        _node_id(path): path.stem for path in (folder / "flwr" / "registered").glob("*.json")
    }
    nodes: list[Node] = []
    for listed in _ask(folder, "supernode", "list")["nodes"]:
        state, number = listed["status"], str(listed["node-id"])
        since = listed.get(
            {"online": "online-at", "offline": "offline-at"}.get(state, "created-at")
        )
        known = None if since in (None, "N/A") else str(since)
        nodes.append(Node(names.get(number), number, state, known))
    present = {node.name for node in nodes}
    for path in (folder / "nodes").glob("*"):
        if path.is_dir() and path.name not in present:
            nodes.append(Node(path.name, None, "not registered", None))
    return tuple(sorted(nodes, key=lambda node: node.name or "~"))


def _ask(folder: Path, *words: str) -> dict[str, Any]:
    """Return what `flwr` answers, which tells success by its answer alone."""
    program = shutil.which("flwr") or shutil.which("flwr", path=sysconfig.get_path("scripts"))
    if program is None:
        raise ConfigError(
            "Expected Flower's command flwr, found none. Run pip install 'covey[flower]'."
        )
    try:
        done = subprocess.run(  # noqa: S603 - no word is from elsewhere
            [program, *words, CONNECTION, "--format", "json"],
            env={**os.environ, **SWITCHES, "FLWR_HOME": str((folder / "flwr").absolute())},
            capture_output=True,
            text=True,
            timeout=_STATUS_PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        problem = f"nothing in {_STATUS_PATIENCE:.0f} seconds."
    else:
        try:
            answer = json.loads(done.stdout)
        except ValueError:
            problem = (done.stderr or done.stdout).strip()
        else:
            if answer.get("success"):
                return answer
            problem = str(answer.get("error-message", answer)).strip()
    raise NoAnswerError(
        f"Expected the server at {Declaration.read(folder).plan.address} to answer, found: "
        f"{problem.splitlines()[-1] if problem else 'no reason.'} Start server.sh, or look "
        f"with `covey deploy check` at what is in its way."
    )


def _node_id(path: Path) -> str:
    try:
        return str(json.loads(read_bounded(path))["node-id"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as problem:
        raise RunError(
            f"{path} must hold the node's id, as register.sh wrote it, but: {problem!r}. "
            f"Restore the file, or register the node again."
        ) from None
