"""The folder of a federation: who takes part, and all that is started on each machine.

It is the tree of `templates`, filled in, with settings, keys and certificates. These are ECDSA
over P-384, the strongest curve that Flower takes for nodes.
"""

import ipaddress
import re
import secrets
import shutil
import sysconfig
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import tomli_w
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from jinja2 import Environment, PackageLoader, StrictUndefined
from pydantic import TypeAdapter

from covey import Config, ConfigError, RunError, __version__, load_config
from covey.algorithms.algorithm import Clustered
from covey.base.built_ins import NEWCOMERS, ROBUST, default_of
from covey.base.components import reference
from covey.base.files import flush_folder, read_bounded, read_text, replace_whole
from covey.settings.schema import check_enough
from covey_flower.engine import FlowerNodes

CONNECTION = "covey"
"""What `flwr` calls the connection to the server."""

SWITCHES = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",  # another call home than telemetry
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
    "OMP_NUM_THREADS": "1",
}
"""The environment of every process: no calls to others, no waiting, no spinning."""

DECLARATION, AUTHORITY = "deploy.toml", "certificates/ca.crt"
_ROUND_TIMEOUT = 600  # seconds that a round waits for a node
_FIRST_NODE_PORT = 9094
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")


_SECRET = ("key", "ca.key", "server.key", "node.toml")

_AUTHORITY_LIFE = timedelta(days=3653)

_SERVER_LIFE = timedelta(days=730)

_CLOCK_SKEW = timedelta(hours=1)  # of a node whose clock is behind

_USES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
    *("key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)


@dataclass(frozen=True, slots=True)
class DeploymentPlan:
    """A federation before it has a folder.

    Attributes:
        nodes: names of the clients, each on a machine of its own.
        host: the name or address under which the nodes reach the server.
        port: the only port that the server listens on.
        removed: names among `nodes` that were taken off the list.
    """

    nodes: tuple[str, ...]
    host: str = "127.0.0.1"
    port: int = 8000
    removed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what cannot become a folder, a certificate or an address."""
        name = next((n for n in self.nodes if not _NAME.fullmatch(n)), None)
        twice = not self.invited or len(set(self.nodes)) < len(self.nodes)
        for is_wrong, expected, actual in (
            (
                name is not None,
                "A node's name has at most 63 letters, digits, '.', '_', '-'",
                repr(name),
            ),
            (twice, "At least one node, and each name once", ", ".join(self.nodes) or "none"),
            (not 0 < self.port < 65536, "--port takes a number from 1 to 65535", self.port),
            (
                self.ip is None and not _HOST.fullmatch(self.host),
                "--host takes the name or address under which nodes reach the server, no port",
                repr(self.host),
            ),
        ):
            if is_wrong:
                raise ConfigError(f"{expected}, found {actual}: correct it.")

    @property
    def invited(self) -> tuple[str, ...]:
        """The names on the list."""
        return tuple(name for name in self.nodes if name not in self.removed)

    @property
    def ip(self) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
        """The host as an address, if it is not a name."""
        with suppress(ValueError):
            return ipaddress.ip_address(self.host)
        return None

    @property
    def address(self) -> str:
        """Where the nodes find the server, as HOST:PORT."""
        in_brackets = self.ip is not None and self.ip.version == 6
        return f"[{self.host}]:{self.port}" if in_brackets else f"{self.host}:{self.port}"

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the server."""
        return self.host == "localhost" or (self.ip is not None and self.ip.is_loopback)

    @property
    def bind(self) -> str:
        """What the server listens on: this machine alone, or every interface."""
        if self.is_local:
            return str(self.ip or "127.0.0.1")
        return "::" if self.ip is not None and self.ip.version == 6 else "0.0.0.0"  # noqa: S104

    def node_port(self, name: str) -> int:
        """Return the port on which a node's own processes talk to each other."""
        return _FIRST_NODE_PORT + self.nodes.index(name)


@dataclass(frozen=True, slots=True)
class Declaration:
    """What a folder is for, as `deploy init` writes it beside the scripts.

    Attributes:
        plan: of the federation.
        folder: where the server's part is, which cannot be moved; "": this is a node's.
        node: whose folder it is; "": it is the server's.
        version: of covey, which wrote it.
    """

    plan: DeploymentPlan
    folder: str = ""
    node: str = ""
    version: str = __version__

    @classmethod
    def read(cls, folder: Path) -> "Declaration":
        """Read it from its folder.

        Raises:
            RunError: it is missing or malformed.
        """
        try:
            federation = _DECLARATION.validate_python(
                tomllib.loads(read_text(folder / DECLARATION))
            )
            if (
                (folder.absolute() != Path(federation.folder))
                if federation.folder
                else (federation.node not in federation.plan.nodes)
            ):
                raise ValueError(f"it was moved from {federation.folder}")  # noqa: TRY301
        except (OSError, ValueError, RecursionError, ConfigError) as problem:
            raise RunError(
                f"{folder} must be the folder of a federation or of a node, as its {DECLARATION} "
                f"says, found: {str(problem).rstrip('.')}: give what `covey deploy init` wrote."
            ) from None
        return federation

    @property
    def file(self) -> tuple[str, bytes]:
        """Its own path in the folder, and its content."""
        return DECLARATION, _toml(_DECLARATION.dump_python(self, mode="json"))

    def files(self, **more: object) -> Iterator[tuple[str, bytes]]:
        """Yield the files of the templates' tree, filled in, by their paths in the folder."""
        environment = Environment(  # noqa: S701 - scripts and settings, not HTML
            loader=PackageLoader("covey_flower"),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
        )
        where = {"plan": self.plan, "name": self.node, "out": self.folder, "switches": SWITCHES}
        words = {
            "connection": CONNECTION,
            "timeout": _ROUND_TIMEOUT,
            "authority": AUTHORITY,
            "version": __version__,
        }
        programs = sysconfig.get_path("scripts")
        side = "node/" if self.node else "server/"
        for template in environment.list_templates():
            name = template.removeprefix(side)
            # scripts need nothing more
            if name == template or not (more or name.endswith(".sh")):
                continue
            text = environment.get_template(template).render(
                **where, **words, programs=programs, **more
            )
            yield name.removesuffix(".jinja"), text.encode()


_DECLARATION = TypeAdapter(Declaration)


def federation_settings(config: Path, nodes: int = 0) -> dict[str, Any]:
    """Return a file's settings for a federation on Flower, every default filled in.

    Secrets are random ones, unless the file itself says where they come from. Updates are
    aggregated robustly, unless the file has a section `aggregation`, or noise on their sums,
    or an algorithm without updates. Who enters a cluster is bounded, unless the file says so
    itself (`bounds_newcomers`). Of a new federation the server sees sums alone, where the
    settings and so many nodes allow it.

    Raises:
        ConfigError: naming the key, the value and the remedy.
    """
    overrides = [f"engine.name={reference(FlowerNodes())}"]
    usual = load_config(config, overrides)
    file = tomllib.loads(read_text(config))
    plan = usual.privacy_plan
    noisy = plan.noise > 0 or plan.sums_gradients
    if "aggregation" not in file and not noisy and not usual.method.traits.subtracts:
        overrides.append(f"aggregation.name={ROBUST}")
        usual = load_config(config, overrides)
    if "max_newcomers" not in file.get("method", {}) and bounds_newcomers(usual):
        # of few nodes one may come: a smaller share would be none
        share = max(NEWCOMERS, 1 / (nodes - 1)) if nodes > 1 else NEWCOMERS
        usual = load_config(config, [*overrides, f"method.max_newcomers={share}"])
    settings = usual.model_dump(mode="json")
    if "source" not in file.get("secrets", {}):
        settings["secrets"]["source"] = "os"
    privacy = file.get("privacy", {})
    # the smallest cohort, 5 or 70% of the nodes, leaves room for those who drop out
    least = privacy.get("min_cohort", max(3, min(5, int(0.7 * nodes))))
    if "secure_sums" not in privacy and nodes >= least:
        masks = {"secure_sums": True, "min_cohort": least}
        masked = {**settings, "privacy": {**settings["privacy"], **masks}}
        with suppress(ConfigError):
            Config.of(masked)
            return masked
    return settings


def bounds_newcomers(config: Config) -> bool:
    """Say whether a bound on who enters a cluster helps, and honest clients hardly meet it.

    A mean is lost to one of them. Random models and part of the clients make few initial members.
    Who weighs a cluster's risk moves late and honestly, and would sit out.
    """
    return (
        isinstance(config.method, Clustered)
        and config.method.enters_at_will
        and config.train.participation == 1
        and not config.train.cohort_size
        and config.aggregation.name != default_of("aggregation")
    )


def write_federation(config: Path, out: Path, plan: DeploymentPlan, now: datetime) -> Path:
    """Write the folder of a federation; it is whole or not there.

    Args:
        config: settings in TOML.
        out: the new folder.
        plan: who takes part, and where the server is.
        now: when the certificates begin, with a time zone.

    Returns:
        The folder, as an absolute path: the server's part of it cannot be moved.

    Raises:
        ConfigError: the settings are wrong, or the folder is there already.
    """
    settings = federation_settings(config, len(plan.nodes))
    check_enough(Config.of(settings), len(plan.nodes), "nodes")
    out = out.absolute()
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(
            f"{out} must be new or empty, as keys are kept, found files: give another --out."
        )
    if any(character in str(out) for character in "\"'\\$`\n"):
        raise ConfigError(
            f"--out must have no quote, backslash or dollar sign, found {str(out)!r}: give another."
        )
    _write_folder(out, _files(settings, out, plan, now))
    return out


def list_node(home: Path, name: str, *, removes: bool = False) -> tuple[str, ...]:
    """Put a node on the list of a federation, with a folder, or take it off; return the list.

    A server that runs reads the list in every round. Who was on it never comes back by that name.

    Raises:
        CoveyError: `home` is no server's folder, or the node has been, or is not, on its list.
    """
    declared = Declaration.read(home)
    plan, own = declared.plan, home.absolute() / "nodes" / name
    if declared.node or (removes and name not in plan.invited):
        raise RunError(
            f"{home / DECLARATION} must be the server's and list {name!r}, found "
            f"{declared.node or ', '.join(plan.invited)}: correct the name."
        )
    if removes:
        plan = replace(plan, removed=(*plan.removed, name))
        (own / "key.pub").unlink(missing_ok=True)  # so that it is registered no more
    else:
        plan, key = replace(plan, nodes=(*plan.nodes, name)), node_key(name)
        settings = tomllib.loads(read_text(home / "covey.toml"))
        authority = read_bounded(home / AUTHORITY)
        _write_folder(own, _node_files(settings, Declaration(plan, node=name), key, b"", authority))
    public = sorted(home.glob("nodes/*/key.pub"))
    for path in home.glob("nodes/*/peers"):
        replace_whole(path, b"".join(map(read_bounded, public)), 0o644)
    replace_whole(home / DECLARATION, replace(declared, plan=plan).file[1], 0o644)
    return plan.invited


def _write_folder(out: Path, files: Iterable[tuple[str, bytes]]) -> None:
    """Write a new folder of paths inside it, and contents; it is whole or not there."""
    out.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}."))
    try:
        for name, content in files:
            path = unfinished / name
            for folder in reversed([*path.relative_to(unfinished).parents][:-1]):
                (unfinished / folder).mkdir(mode=0o700, exist_ok=True)
            usual = 0o700 if path.suffix == ".sh" else 0o644
            replace_whole(path, content, 0o600 if path.name in _SECRET else usual)
        if out.is_dir():  # an empty one, which Windows does not replace
            out.rmdir()
        unfinished.rename(out)
    except BaseException:
        shutil.rmtree(unfinished)
        raise
    flush_folder(out.parent)


def _files(
    settings: dict[str, Any], out: Path, plan: DeploymentPlan, now: datetime
) -> Iterator[tuple[str, bytes]]:
    """Yield paths inside the folder, and contents."""
    declared = Declaration(plan, str(out))
    yield "covey.toml", _toml(settings)
    yield declared.file
    yield from declared.files(privacy=settings["privacy"])
    certificates = _certificates(plan.host, now)
    yield from certificates.items()
    keys = {name: node_key(name) for name in plan.nodes}
    peers = b"".join(public for _, public in keys.values())
    for name, key in keys.items():
        node = Declaration(plan, node=name)
        own = _node_files(settings, node, key, peers, certificates[AUTHORITY])
        yield from ((f"nodes/{name}/{path}", content) for path, content in own)


def _node_files(
    settings: dict[str, Any], node: Declaration, key: tuple[bytes, bytes], *more: bytes
) -> Iterator[tuple[str, bytes]]:
    """Yield paths inside a node's folder, and contents: of `more` all peers and the authority."""
    # the server's database and keys are none of a node's business
    theirs = {key: value for key, value in settings.items() if key != "ledger"}
    theirs["secrets"] = {"source": settings["secrets"]["source"]}
    yield "covey.toml", _toml(theirs)
    yield from zip(("key", "key.pub", "peers", "ca.crt"), (*key, *more), strict=True)
    yield node.file
    yield from node.files(seed=secrets.randbits(63))


def _toml(settings: dict[str, Any]) -> bytes:
    return tomli_w.dumps(settings).encode()


def _certificates(host: str, now: datetime) -> dict[str, bytes]:
    """Make an authority that signs itself, and a server's certificate by it; PEM by file.

    The server's names `host` for the nodes, and this machine for the server's own
    processes. With the authority's key one can be the server, for every node.
    """
    root, server = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "covey federation")])
    names = [general_name(name) for name in dict.fromkeys((host, "localhost", "127.0.0.1"))]

    def signed(
        name: str,
        key: ec.EllipticCurvePrivateKey,
        life: timedelta,
        use: str,
        *more: tuple[x509.ExtensionType, bool],
    ) -> bytes:
        is_root = key is root
        uses = x509.KeyUsage(**{usage: usage == use for usage in _USES})
        length = 0 if is_root else None
        builder = x509.CertificateBuilder(
            issuer_name=issuer,
            subject_name=x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]),
            public_key=key.public_key(),
            serial_number=x509.random_serial_number(),
            not_valid_before=now - _CLOCK_SKEW,
            not_valid_after=now + life,
        )
        for extension, critical in (
            (x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False),
            (x509.BasicConstraints(ca=is_root, path_length=length), True),
            (uses, True),
            *more,
        ):
            builder = builder.add_extension(extension, critical)
        return builder.sign(root, SHA384()).public_bytes(Encoding.PEM)

    pem = Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    return {
        AUTHORITY: signed("covey federation", root, _AUTHORITY_LIFE, "key_cert_sign"),
        "certificates/ca.key": root.private_bytes(*pem),
        "certificates/server.pem": signed(
            "covey server",
            server,
            _SERVER_LIFE,
            "digital_signature",
            (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
            (x509.SubjectAlternativeName(names), False),
            (x509.AuthorityKeyIdentifier.from_issuer_public_key(root.public_key()), False),
        ),
        "certificates/server.key": server.private_bytes(*pem),
    }


def general_name(host: str) -> x509.DNSName | x509.IPAddress:
    """Return a host as a certificate has it."""
    with suppress(ValueError):
        return x509.IPAddress(ipaddress.ip_address(host))
    return x509.DNSName(host)


def node_key(name: str) -> tuple[bytes, bytes]:
    """Make a node's key pair, as `ssh-keygen -t ecdsa -b 384` writes it; return its files.

    With it a node joins and signs sums under masks, these with or without TLS
    (`covey_flower.identity`). The name is only its comment.
    """
    key = ec.generate_private_key(ec.SECP384R1())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    return private, public + b" " + name.encode("ascii") + b"\n"
