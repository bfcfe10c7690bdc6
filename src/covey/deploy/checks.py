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
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from covey.base.errors import ConfigError, CoveyError, DataError, RunError
from covey.base.files import file_hash, permissions_of_others, read_bounded
from covey.build.clients import least_organisations
from covey.build.training import masks_told, summed_up
from covey.components.built_ins import DEFAULTS
from covey.config.settings import Config
from covey.data.arrays import read_client
from covey.data.population import read_organisations
from covey.deploy.folder import (
    CONNECTION,
    SWITCHES,
    Declaration,
    bounds_newcomers,
    federation_settings,
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


_fine, _warning, _error = (
    partial(Finding, "ok"),
    partial(Finding, "warning"),
    partial(Finding, "error"),
)


def _either(about: str, problem: str, fine: str) -> Finding:
    return _error(about, problem) if problem else _fine(about, fine)


def check(folder: Path, now: datetime) -> tuple[Finding, ...]:
    """Look at all that can be looked at without starting anything.

    Args:
        folder: of `covey deploy init`, or of one node of it.
        now: with a time zone.

    Raises:
        RunError: it is neither.
    """
    return tuple(_findings(folder.absolute(), Declaration.read(folder), now))


def _findings(folder: Path, declared: Declaration, now: datetime) -> Iterator[Finding]:
    plan, is_server = declared.plan, bool(declared.folder)
    authority = folder / ("certificates/ca.crt" if is_server else "ca.crt")
    yield from _software(_SERVER_PROGRAMS if is_server else _NODE_PROGRAMS)
    scripts = _scripts(folder, declared)
    yield from scripts.values()
    node = None
    if not is_server:
        if scripts["start.sh"].level == "ok":
            linux = sys.platform == "linux"  # what keeps running, that messages cost a node less
            yield _fine("fork server", _FORK_SERVER if linux else _NO_FORK_SERVER)
        try:
            node = NodeFile.read(folder / "node.toml")
            yield _fine("node.toml", f"complete, for {node.name}")
        except ConfigError as problem:
            yield _error("node.toml", str(problem))
    config, finding = _settings(folder / (node.config if node else "covey.toml"))
    yield finding
    if config is not None and (protection := masks_told(config)):
        bare = summed_up(config) & {"updates", "counts"}
        yield _warning("masks", protection) if bare else _fine("masks", protection)
    if is_server:
        if config is not None:
            yield from _trust(config)
            yield from _organisations(config, plan.nodes)
        yield _app(folder, declared)
    elif node is not None:
        yield _examples(node, config, folder)
    if plan.insecure:
        yield _warning("insecure", _INSECURE)
    else:
        yield from authority_findings(authority, now)
        if is_server:
            yield from server_findings(authority.parent, plan.host, now)
    yield from _permissions(folder)
    answer = knock(plan.address, None if plan.insecure else authority)
    if is_server:
        if scripts["server.sh"].level == "ok":
            yield from _exposure(plan.bind, is_local=plan.is_local)
        yield answer or _fine(plan.address, "nothing is there yet: start server.sh")
    else:
        yield node_port_finding(declared.node_port)
        yield answer or _warning(
            plan.address, "expected the server, found no answer. Start it: the node will wait."
        )


def _app(folder: Path, declared: Declaration) -> Finding:
    problem = ""
    if not (folder / "app" / "pyproject.toml").is_file():
        problem = f"expected a Flower app in {folder / 'app'}, found none. Restore it."
    elif Path(declared.folder) != folder:
        problem = (
            f"expected paths into {folder}, found {declared.folder}: the folder was moved. "
            f"Move it back, or write a new one with `covey deploy init`."
        )
    return _either("app", problem, "its paths lead here")


def _software(programs: Sequence[str]) -> Iterator[Finding]:
    """Look for Flower, and for the programs that it starts by name."""
    yield _fine("covey", f"version {version('covey')}; use the same on every machine")
    least, below = (".".join(map(str, numbers)) for numbers in FLOWER)
    wanted, remedy = f"expected flwr >= {least}, < {below}", "Run pip install 'covey[flower]'."
    try:
        installed = version("flwr")
        fits = FLOWER[0] <= tuple(map(int, installed.split(".")[:2])) < FLOWER[1]
    except PackageNotFoundError:
        installed, fits = "none", False
    yield _either(
        "flwr",
        "" if fits else f"{wanted}, found {installed}. {remedy}",
        f"version {installed}; use the same on every machine",
    )
    missing = [name for name in programs if shutil.which(name) is None]
    problem = (
        f"expected Flower's programs, found no {', '.join(missing)}. Activate the "
        f"environment that covey is installed in before the scripts are started."
    )
    yield _either("PATH", problem if missing else "", f"{', '.join(programs)} are there")


def _scripts(folder: Path, declared: Declaration) -> dict[str, Finding]:
    """Look whether scripts are as they were written: of others nothing is known."""
    findings: dict[str, Finding] = {}
    for name in ("server.sh", "flwr.sh") if declared.folder else ("start.sh",):
        try:
            problem = "" if file_hash(folder / name) == declared.scripts.get(name) else _CHANGED
        except OSError as error:
            problem = (
                f"expected the script that covey wrote, found: {error}. Write the folder "
                f"again with `covey deploy init`."
            )
        off = "telemetry, update checks and installation at run time are off"
        findings[name] = _either(name, problem, off)
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


_INSECURE = (
    "expected TLS and node keys, found --insecure: anybody can join and read. For "
    "trying things out on one machine only."
)


def _settings(path: Path) -> tuple[Config | None, Finding]:
    """Read the federation's settings: what they say, and whether they are right."""
    try:
        config = Config.of(federation_settings(path))
    except CoveyError as problem:
        return None, _error(path.name, str(problem))
    if config.secrets.source == "seeded":
        return config, _warning(
            path.name,
            "expected secrets.source = 'os', found 'seeded': whoever has these settings, "
            "so every node, can recompute what hides clients. For experiments only.",
        )
    return config, _fine(path.name, "the settings are valid")


_OPEN_SUMS = (
    "expected privacy.secure_sums = true, found false: the server sees each client's own "
    "sums, which give the features of few records away. Set it, with method.initialisation "
    "= 'random' or one cluster, or trust the server."
)


def _trust(config: Config) -> Iterator[Finding]:
    """Warn of a mean that one node can turn round; noise on sums needs the mean.

    Sums are means as well, and a cluster is its newcomers' where anybody may enter it.
    """
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
        if not config.privacy.secure_sums:
            yield _warning("privacy", _OPEN_SUMS)
    elif config.aggregation.name == DEFAULTS["aggregation"] and config.privacy.client_noise == 0:
        found = (
            "expected a robust aggregation, found aggregation.name = 'mean': a few nodes that "
            "lie can turn the model round. Leave the section aggregation out for the geometric "
            "median, or trust every node."
        )
        yield _warning("aggregation", found)


def _organisations(config: Config, nodes: Sequence[str]) -> Iterator[Finding]:
    """Look whether the file of organisations says of every node what the aggregation needs."""
    path, about = config.population.organisations, "organisations"
    if not path:
        if (least := least_organisations(config)) > 1:
            yield _error(
                about,
                f"expected population.organisations, as aggregation.min_organisations = "
                f"{least} needs it, found none: no node would be let in. Name the file.",
            )
        return
    try:
        problem = organisation_problem(config, nodes, read_organisations(Path(path)))
    except CoveyError as error:
        problem = str(error)
    yield _either(about, problem, "it is known whose client each node is")


def _examples(node: NodeFile, config: Config | None, folder: Path) -> Finding:
    """Look for a node's examples; a relative path starts at its folder."""
    if node.data:
        try:
            examples = read_client(folder / node.data)
        except DataError as problem:
            return _error("data", str(problem))
        return _fine("data", f"{len(examples):,} examples in {folder / node.data}")
    # only such data are shared out among clients with numbers for names
    if config is not None and ":" not in config.data.name and config.data.simulates:
        last = config.population.clients - 1
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
    other = f"expected the key of server.pem, found another. {_AGAIN}"
    is_same = key.public_key() == server.public_key()
    yield _either(path.name, "" if is_same else other, "is the key of server.pem")


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
    words = ("run-id", "fab-id", "status", "status-details")
    try:
        nodes, runs = nodes_of(folder), _ask(folder, "list")["runs"]
    except NoAnswerError as problem:
        return Status(address, str(problem))
    listed = (Run(*(str(run[key]) for key in words), elapsed=float(run["elapsed"])) for run in runs)
    return Status(address, "", nodes, tuple(listed))


def nodes_of(folder: Path) -> tuple[Node, ...]:
    """Ask the server for its nodes; also named are those that it does not know.

    Raises:
        NoAnswerError: it does not answer.
        ConfigError: Flower is not installed here.
    """
    names = {  # by node id, as register.sh kept them
        _node_id(path): path.stem for path in (folder / "flwr" / "registered").glob("*.json")
    }
    began = {"online": "online-at", "offline": "offline-at"}
    nodes: list[Node] = []
    for listed in _ask(folder, "supernode", "list")["nodes"]:
        state, number = listed["status"], str(listed["node-id"])
        since = listed.get(began.get(state, "created-at"))
        known = None if since in (None, "N/A") else str(since)
        nodes.append(Node(names.get(number), number, state, known))
    here = {path.name for path in (folder / "nodes").glob("*") if path.is_dir()}
    absent = here - {node.name for node in nodes}
    nodes += [Node(name, None, "not registered", None) for name in absent]
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
