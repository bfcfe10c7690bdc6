"""What a machine has: software, scripts, private files, ports."""

import shutil
import socket
import ssl
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from covey.deploy.diagnostics import Finding, error, fine, warning
from covey.deploy.plan import SWITCHES
from covey.deploy.scripts import Script, host_and_port
from covey.portable import permissions_of_others

__all__ = [
    "FLOWER",
    "fork_server_finding",
    "knock",
    "node_port_findings",
    "permission_findings",
    "software_findings",
    "switch_findings",
]

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
            script.path.name,
            "telemetry, update checks and installation at run time are off",
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
