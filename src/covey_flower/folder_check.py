"""A federation's folder before anything is started: what is wrong, and what is a choice."""

import shutil
import socket
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from covey import Config, CoveyError, RunError
from covey.base.built_ins import default_of
from covey.base.files import permissions_of_others, read_bounded
from covey.base.names import how_to_install
from covey.data.arrays import read_client
from covey.settings.schema import check_enough
from covey.settings.trust import Trust, trust
from covey_flower.deployment import (
    AUTHORITY,
    Declaration,
    DeploymentPlan,
    bounds_newcomers,
    federation_settings,
    general_name,
)
from covey_flower.engine import shared_settings_hash
from covey_flower.node_file import NodeFile

FLOWER = ((1, 41), (1, 43))
"""The first version of Flower that covey is made for, and the first that it is not."""


_IN_MEMORY = (
    "the server is in memory, and updates stay off the disk, unless it is started with "
    "--database: then every client's updates pass through that file, and no denial covers it"
)

_AGAIN = "write a new folder with `covey deploy init`, or replace the file."


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


class _Choice(Exception):  # noqa: N818 - it is none
    """What a warning says."""


def _check(about: str, look: Callable[..., str], *at: object) -> Finding:
    """Look at something: the function returns what is fine, and raises what is not."""
    try:
        return Finding("ok", about, look(*at))
    except _Choice as choice:
        return Finding("warning", about, str(choice))
    except CoveyError as problem:
        return Finding("error", about, str(problem))
    except (OSError, ValueError, TypeError) as problem:
        return Finding("error", about, f"expected a readable file, found {problem}: {_AGAIN}")


def trust_in(folder: Path) -> tuple[Trust, ...]:
    """Return who has to trust whom for what in a federation's or a node's folder, if it is whole.

    Raises:
        RunError: it is neither.
    """
    is_node = bool(Declaration.read(folder).node)
    try:
        path = folder / (NodeFile.read(folder / "node.toml").config if is_node else "covey.toml")
        return tuple(trust(Config.of(federation_settings(path))))
    except CoveyError:
        return ()


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
    plan, is_node = declared.plan, bool(declared.node)
    yield _check("flwr", _versions, declared)
    yield _check("PATH", lambda: _programs(is_node=is_node))
    scripts = [_check(n, _unchanged, folder / n, content) for n, content in declared.files()]
    yield from scripts
    node, config, about = None, None, "node.toml" if is_node else "covey.toml"
    try:
        path = folder / about
        if is_node:
            node = NodeFile.read(path)
            yield Finding("ok", about, f"complete, for {node.name}")
            path, about = folder / node.config, Path(node.config).name
        config = Config.of(federation_settings(path))
        least = max(config.privacy_plan.min_cohort, (node and node.min_cohort) or 0)
        own = Config.of(config.changed({"privacy.min_cohort": least} if least else {}))
        check_enough(own, len(plan.invited), "nodes")
        yield Finding("ok", about, "the settings are valid")
    except CoveyError as problem:
        yield Finding("error", about, str(problem))
    if config is not None:
        yield from (Finding("warning", *choice) for choice in _choices(config, is_node=is_node))
    if node is not None:
        yield _check("data", _examples, node, config, folder)
    home = folder.parents[1] if is_node else folder
    beside = [folder] if is_node else [home / "nodes" / name for name in plan.invited]
    if (home / "covey.toml").is_file():
        here = (folder for folder in beside if (folder / "node.toml").is_file())
        yield from (_check(f"nodes/{folder.name}", _agrees, folder, home) for folder in here)
    authority = folder / ("ca.crt" if is_node else AUTHORITY)
    yield _check(authority.name, _life, authority, now)
    if not is_node:
        server = authority.with_name("server.pem")
        yield _check(server.name, _life, server, now)
        yield _check(server.name, _chain, authority.parent, plan.host, now)
        yield _check("server.key", _key, authority.parent)
        if all(script.level == "ok" for script in scripts):
            yield Finding("ok", "server.sh", _IN_MEMORY)
            yield _check("server.sh", _exposed, plan)
    yield _check("permissions", _permissions, folder)
    yield _check(plan.address, lambda: _check_tls(plan.address, authority, is_node=is_node))


def _exposed(plan: DeploymentPlan) -> str:
    if not plan.is_local:
        raise _Choice(
            f"expected a port that only nodes can reach, found --host {plan.bind}, where anybody "
            f"can register keys and start apps with Flower: see README.md for a firewall."
        )
    return "only this machine can reach the server"


def _choices(config: Config, *, is_node: bool) -> Iterator[tuple[str, str]]:
    """Yield settings to be aware of, and what they mean."""
    if config.secrets.source == "seeded":
        yield (
            "covey.toml",
            "expected secrets.source = 'os', found 'seeded': anybody with these settings, so every "
            "node, can recompute what hides clients. For experiments only.",
        )
    if is_node:
        return
    # a cluster is its newcomers' where anybody may enter it
    if bounds_newcomers(config) and not getattr(config.method, "max_newcomers", 0.0):
        yield (
            "method",
            "expected method.max_newcomers above 0, found 0: nodes that lie can all choose a small "
            "cluster and be its majority. Leave it out, or trust every node.",
        )
    if config.method.traits.subtracts:
        yield (
            "method",
            "expected models that no client moves far, found heads that are solved from sums: who "
            "announces many examples counts for as many, and no median is taken of sums. Trust "
            "every node, or know how many examples it may have.",
        )
        if config.privacy_plan.masks is None:
            yield (
                "privacy",
                "expected privacy.secure_sums = true, found false: the server sees each client's "
                "own sums, which give the features of few records away. Set it, with "
                "method.initialisation = 'random' or one cluster, or trust the server.",
            )
    # noise on sums needs the mean
    elif config.aggregation.name == default_of("aggregation") and not config.privacy_plan.noise:
        yield (
            "aggregation",
            "expected a robust aggregation, found aggregation.name = 'mean': a few nodes that lie "
            "can turn the model round. Leave the section aggregation out for the geometric "
            "median, or trust every node.",
        )


def _versions(declared: Declaration) -> str:
    least, below = (".".join(map(str, numbers)) for numbers in FLOWER)
    try:
        installed = version("flwr")
    except PackageNotFoundError:
        installed = "0.0: none"
    if not FLOWER[0] <= tuple(map(int, installed.split(":")[0].split(".")[:2])) < FLOWER[1]:
        raise RunError(
            f"expected flwr >= {least}, < {below}, found {installed}: {how_to_install('flower')}."
        )
    if version("covey") != declared.version:
        raise RunError(
            f"expected covey {declared.version}, found {version('covey')}: install it everywhere."
        )
    return f"version {installed}, with covey {declared.version}; use the same on every machine"


def _agrees(folder: Path, home: Path) -> str:
    """Compare a node's folder with the server's, where that is on this machine."""
    own, server = Declaration.read(folder), Declaration.read(home)
    config = folder / NodeFile.read(folder / "node.toml").config
    hashes = [
        shared_settings_hash(Config.of(federation_settings(path)))
        for path in (config, home / "covey.toml")
    ]
    certificates = [read_bounded(path) for path in (folder / "ca.crt", home / AUTHORITY)]
    wrong = {
        "no such name on its list": own.node not in server.plan.invited,
        f"covey {own.version}, the server {server.version}": own.version != server.version,
        f"other settings in {config.name}": hashes[0] != hashes[1],
        "another certificate in ca.crt": certificates[0] != certificates[1],
    }
    if faults := [what for what, is_so in wrong.items() if is_so]:
        raise RunError(
            f'expected node "{own.node}" to agree with the server in {home}, found '
            f"{'; '.join(faults)}: copy what the server has, or install the same."
        )
    return f'node "{own.node}" has the covey, settings and certificate of the server'


def _programs(*, is_node: bool) -> str:
    """Look for what the scripts start."""
    programs = ("flower-supernode", "flower-superexec", "flwr-clientapp")
    if not is_node:
        programs = ("flower-superlink", "flower-superexec", "flwr-serverapp", "flwr")
    if missing := [name for name in programs if shutil.which(name) is None]:
        raise RunError(
            f"expected Flower, found no {', '.join(missing)}: activate covey's environment first."
        )
    return f"{', '.join(programs)} are there"


def _unchanged(script: Path, content: bytes) -> str:
    """Look whether a script is as this covey writes it: of others nothing is known."""
    content_now = read_bounded(script) if script.is_file() else None
    if content_now != content:
        raise RunError(
            f"expected it as covey {version('covey')} writes it, found "
            f"{'none' if content_now is None else 'it changed'}, and what it sends, whom it lets "
            f"in and what it leaves on the disk is not known: write the folder again with `covey "
            f"deploy init`; options are words behind the script's name."
        )
    return "telemetry, update checks and installation at run time are off"


def _examples(node: NodeFile, config: Config | None, folder: Path) -> str:
    """Look for a node's examples; a relative path starts at its folder."""
    if node.data:
        path = folder / node.data
        label = "" if config is None else config.data.label
        return f"{len(read_client(path, label)):,} examples in {path}"
    # only such data are shared out among clients with numbers for names
    if config is not None and ":" not in config.data.name and config.data.simulates:
        last = config.population.clients - 1
        if node.name not in (f"client-{index:05}" for index in range(last + 1)):
            raise RunError(
                f"expected an .npz or .csv file, or a simulated client's name up to "
                f"client-{last:05}, found {node.name!r}: set data in node.toml."
            )
    raise _Choice(
        f"expected an .npz or .csv file, found none, so {node.name!r} is simulated: set data in "
        f"node.toml."
    )


def _permissions(folder: Path) -> str:
    """Look whether anybody but the owner can read what is private and still there."""
    patterns = ("certificates/*.key", "nodes/*/key", "nodes/*/node.toml", "key", "node.toml")
    private = [folder, *(path for pattern in patterns for path in folder.glob(pattern))]
    modes = {str(path): path.stat().st_mode & 0o777 for path in private}
    if open_ones := {path: m for path, m in modes.items() if permissions_of_others(m)}:
        modes = ", ".join(f"{path} with mode {mode:04o}" for path, mode in open_ones.items())
        raise RunError(
            f"expected what is private for its owner alone, found {modes}: run chmod go= "
            f"{' '.join(open_ones)}; if others may have read it, make a new one."
        )
    return f"{len(private)} private files and folders are private"


def _check_tls(address: str, authority: Path, *, is_node: bool) -> str:
    """Look what answers at the server's address, and whether it is of this authority."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    try:
        with socket.create_connection((host, int(port)), timeout=3.0) as plain:
            context = ssl.create_default_context(cafile=authority)
            context.wrap_socket(plain, server_hostname=host).close()
    except (ssl.SSLError, ConnectionResetError) as problem:
        raise RunError(
            f"expected the server with a certificate of {authority}, found {problem}: look whether "
            f"another program has the port, or the certificates are of another folder."
        ) from None
    except OSError as problem:
        if is_node:
            raise _Choice(
                f"expected the server, found no answer ({problem}): start it, the node will wait; "
                f"or correct the host, or this machine's DNS."
            ) from None
        return "nothing is there yet: start server.sh"
    return "the server answers"


def _certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(read_bounded(path))
    except (OSError, ValueError) as problem:
        raise RunError(f"expected a certificate in {path}, found {problem}: {_AGAIN}") from None


def _life(path: Path, now: datetime) -> str:
    certificate = _certificate(path)
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if not begin <= now <= end:
        raise RunError(
            f"expected it to hold today, {now:%Y-%m-%d}, found {begin:%Y-%m-%d} to "
            f"{end:%Y-%m-%d}: set the clock, or {_AGAIN}"
        )
    life = f"holds until {end:%Y-%m-%d}"
    if end - now < timedelta(days=30):
        raise _Choice(f"expected it to hold a month more, {life}: {_AGAIN}")
    return life


def _chain(folder: Path, host: str, now: datetime) -> str:
    """Look whether nodes, and the server's own processes, believe the server."""
    authority, server = (_certificate(folder / name) for name in ("ca.crt", "server.pem"))
    try:
        server.verify_directly_issued_by(authority)
        for name in (host, "127.0.0.1"):
            policy = PolicyBuilder().store(Store([authority])).time(now)
            policy.build_server_verifier(general_name(name)).verify(server, [])
    except (VerificationError, InvalidSignature, ValueError) as problem:
        raise RunError(
            f"expected ca.crt to sign it for {host}, for the nodes, and 127.0.0.1, for the "
            f"server's own processes, found {problem}: {_AGAIN}"
        ) from None
    return f"is signed by ca.crt for {host} and 127.0.0.1"


def _key(folder: Path) -> str:
    key = load_pem_private_key(read_bounded(folder / "server.key"), password=None)
    if key.public_key() != _certificate(folder / "server.pem").public_key():
        raise RunError(f"expected the key of server.pem, found another: {_AGAIN}")
    return "is the key of server.pem"
