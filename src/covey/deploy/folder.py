"""The folder of a federation: who takes part, and all that is started on each machine.

Certificates of the server and the keys by which it knows its nodes are ECDSA over P-384, the
strongest curve that Flower takes for nodes.
"""

import hashlib
import ipaddress
import re
import secrets
import shutil
import sysconfig
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
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

from covey.algorithms.algorithm import Clustered
from covey.base.errors import ConfigError, RunError
from covey.base.files import flush_folder, read_text, replace_whole
from covey.build.clients import least_organisations
from covey.components.built_ins import DEFAULTS, NEWCOMERS, ROBUST
from covey.components.parts import reference
from covey.config.settings import Config, load_config
from covey.data.population import read_organisations
from covey.engine.kinds import FlowerNodes

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

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_ORGANISATION = re.compile(r"""[^\s,'"]([^,'"\r\n]{0,98}[^\s,'"])?""")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
_FIRST_NODE_PORT = 9094


@dataclass(frozen=True, slots=True)
class Plan:
    """A federation before it has a folder.

    Attributes:
        nodes: names of the clients, each on a machine of its own.
        host: the name or address under which the nodes reach the server.
        port: the only port that the server listens on.
        insecure: neither encryption nor authentication.
        organisations: whose client each one is, as far as the operator attests it.
    """

    nodes: tuple[str, ...]
    host: str = "127.0.0.1"
    port: int = 8000
    insecure: bool = False
    organisations: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        """Refuse what cannot become a folder, a certificate or an address."""
        for name in self.nodes:
            if not _NAME.fullmatch(name):
                raise ConfigError(
                    f"--node takes a name of at most 63 letters, digits, '.', '_' and "
                    f"'-' that starts with a letter or digit, found {name!r}. Rename it."
                )
        if not self.nodes or len(set(self.nodes)) < len(self.nodes):
            raise ConfigError(
                f"A federation needs at least one --node, and each name once, found "
                f"{', '.join(self.nodes) or 'none'}. Name every client once."
            )
        if strangers := sorted(self.organisations.keys() - set(self.nodes)):
            raise ConfigError(
                f"An organisation is attested for a client that takes part, found one of "
                f"{strangers[0]!r}, which is no --node. Correct the name."
            )
        for name, organisation in self.organisations.items():
            if not _ORGANISATION.fullmatch(organisation):
                raise ConfigError(
                    f"--organisation takes NAME=ORGANISATION, with an organisation of at "
                    f"most 100 characters, no comma or quote among them, found "
                    f"{organisation!r} for {name}. Correct it."
                )
        if self.organisations and self.insecure:
            raise ConfigError(
                "An organisation is attested for a key that is registered, found "
                "--insecure, where nodes have none. Leave one of them out."
            )
        if not 0 < self.port < 65536:
            raise ConfigError(
                f"--port takes a number from 1 to 65535, found {self.port}. Correct it."
            )
        if self.ip is None and not _HOST.fullmatch(self.host):
            raise ConfigError(
                f"--host takes the name or address under which the nodes reach the server, found "
                f"{self.host!r}. Leave out the port, and what is before '//'."
            )

    @property
    def ip(self) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
        """The host as an address, if it is not a name."""
        try:
            return ipaddress.ip_address(self.host)
        except ValueError:
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


DECLARATION = "deploy.toml"


@dataclass(frozen=True, slots=True)
class Declaration:
    """What a folder is for, as `deploy init` writes it beside the scripts.

    Attributes:
        plan: of the federation without its organisations; a node's names that node alone.
        scripts: SHA-256 of each script as it was written, by its name.
        folder: where the server's part is, which cannot be moved; "": this is a node's.
        node_port: where a node's own processes meet; 0: this is the server's.
    """

    plan: Plan
    scripts: Mapping[str, str]
    folder: str = ""
    node_port: int = 0

    @classmethod
    def read(cls, folder: Path) -> "Declaration":
        """Read it from its folder.

        Raises:
            RunError: it is missing or malformed.
        """
        path = folder / DECLARATION
        try:
            return _DECLARATION.validate_python(tomllib.loads(read_text(path)))
        except (OSError, ValueError, RecursionError, ConfigError) as problem:
            raise RunError(
                f"{folder} must be the folder of a federation or of one of its nodes, whose "
                f"{DECLARATION} says which, but: {problem}. Give what `covey deploy init` wrote."
            ) from None

    def toml(self) -> bytes:
        """Return it as it is written."""
        return _toml(_DECLARATION.dump_python(self, mode="json"))


_DECLARATION = TypeAdapter(Declaration)

_FEWEST = 3
_USUAL = 5
_STAYING = 0.7
"""The share of the nodes that is enough for a sum: the others may drop out."""


def federation_settings(config: Path, nodes: int = 0) -> dict[str, Any]:
    """Return a file's settings for a federation on Flower, every default filled in.

    Secrets are random ones, unless the file itself says where they come from. Updates are
    merged robustly, unless the file has a section `aggregation`, or noise on their sums, or an
    algorithm without updates. Who enters a cluster is bounded, unless the file says so
    itself (`bounds_newcomers`). Of a new federation the server sees sums alone, where the
    settings and so many nodes allow it.

    Raises:
        ConfigError: naming the key, the value and the remedy.
    """
    overrides = [f"engine.name={reference(FlowerNodes())}"]
    usual = load_config(config, overrides)
    file = tomllib.loads(read_text(config))
    noisy = usual.privacy.client_noise > 0
    if "aggregation" not in file and not noisy and not usual.method.subtracts:
        overrides.append(f"aggregation.name={ROBUST}")
        usual = load_config(config, overrides)
    if "max_newcomers" not in file.get("method", {}) and bounds_newcomers(usual):
        usual = load_config(config, [*overrides, f"method.max_newcomers={NEWCOMERS}"])
    settings = usual.model_dump(mode="json")
    if "source" not in file.get("secrets", {}):
        settings["secrets"]["source"] = "os"

    privacy = file.get("privacy", {})
    # the smallest cohort leaves room for those who drop out
    least = privacy.get("min_cohort", max(_FEWEST, min(_USUAL, int(_STAYING * nodes))))
    if "secure_sums" in privacy or nodes < least:
        return settings
    masks = {"secure_sums": True, "min_cohort": least}
    masked = {**settings, "privacy": {**settings["privacy"], **masks}}
    try:
        Config.of(masked)
    except ConfigError:
        return settings
    return masked


def bounds_newcomers(config: Config) -> bool:
    """Say whether a bound on who enters a cluster helps, and honest clients hardly meet it.

    A mean is lost to one of them. Random models and part of the clients make few founders.
    Who weighs a cluster's risk moves late and honestly, and would sit out.
    """
    return (
        isinstance(config.method, Clustered)
        and config.method.enters_at_will
        and config.train.participation == 1
        and not config.train.cohort_size
        and config.aggregation.name != DEFAULTS["aggregation"]
    )


def organisation_problem(config: Config, nodes: Sequence[str], known: Mapping[str, str]) -> str:
    """Say what the aggregation must know of whose clients nodes are, and does not; "": nothing."""
    least = least_organisations(config)
    lacking = [name for name in nodes if name not in known]
    present = {known[name] for name in nodes if name in known}
    if least > 1 and lacking:
        return (
            f"expected whose client each node is, as aggregation.min_organisations = {least} "
            f"needs it, found nothing of {lacking[0]!r}, which would not be let in. Say "
            f"--organisation {lacking[0]}=WHOSE, or add a line for it to the file."
        )
    if least > len(present):
        return (
            f"expected {least} organisations, as aggregation.min_organisations says, found "
            f"{len(present)}: no set would be complete. Correct whose clients nodes are, or "
            f"lower it."
        )
    return ""


ORGANISATIONS = "organisations.csv"
"""Whose client each one is: the operator's word, which no node can change."""


def _attest(settings: dict[str, Any], out: Path, plan: Plan) -> Plan:
    """Return the plan with the organisations of its nodes; the settings name their file."""
    file = settings["population"]["organisations"]
    known = read_organisations(Path(file)) if file else {}
    known = {name: known[name] for name in plan.nodes if name in known}
    plan = replace(plan, organisations={**known, **plan.organisations})
    config = Config.of(settings)
    if not plan.organisations and least_organisations(config) == 1:
        return plan
    if problem := organisation_problem(config, plan.nodes, plan.organisations):
        raise ConfigError(f"{problem[0].upper()}{problem[1:]}")
    settings["population"]["organisations"] = str(out / ORGANISATIONS)
    return plan


_ROUND_TIMEOUT = 600
"""Seconds that a round waits for a node."""

_SECRET, _SCRIPT, _READABLE = 0o600, 0o700, 0o644

_Files = Iterator[tuple[str, bytes, int]]
"""Paths inside the folder, contents and modes."""


def write_federation(config: Path, out: Path, plan: Plan, now: datetime) -> Path:
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
    out = out.absolute()
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(
            f"{out} must be new or empty, found something in it. Give another --out; "
            f"the keys of a federation are never overwritten."
        )
    if any(each in str(out) for each in "\"'\\$`\n"):
        raise ConfigError(
            f"--out is written into scripts and settings, so its path must have no "
            f"quotes, backslashes or dollar signs, found {str(out)!r}. Give another."
        )
    plan = _attest(settings, out, plan)
    out.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}."))
    try:
        for name, content, mode in _files(settings, out, plan, now):
            path = unfinished / name
            for folder in reversed([*path.relative_to(unfinished).parents][:-1]):
                (unfinished / folder).mkdir(mode=0o700, exist_ok=True)
            replace_whole(path, content, mode)
        if out.is_dir():  # an empty one, which Windows does not replace
            out.rmdir()
        unfinished.rename(out)
    except BaseException:
        shutil.rmtree(unfinished)
        raise
    flush_folder(out.parent)
    return out


def _files(settings: dict[str, Any], out: Path, plan: Plan, now: datetime) -> _Files:
    context = {
        "plan": plan,
        "out": out,
        "switches": SWITCHES,
        "connection": CONNECTION,
        "programs": sysconfig.get_path("scripts"),
        "timeout": _ROUND_TIMEOUT,
        "privacy": settings["privacy"],
    }
    yield "covey.toml", _toml(settings), _READABLE
    if plan.organisations:
        rows = [("name", "organisation"), *sorted(plan.organisations.items())]
        text = "".join(f"{name},{organisation}\n" for name, organisation in rows)
        yield ORGANISATIONS, text.encode(), _SECRET
    yield from _app(out, plan)
    trust = {"insecure": True} if plan.insecure else {"root-certificates": str(out / _AUTHORITY)}
    connection = {"address": plan.address, **trust}
    flwr = {"superlink": {"default": CONNECTION, CONNECTION: connection}}
    yield "flwr/config.toml", _toml(flwr), _READABLE
    names = ("server.sh", "flwr.sh") if plan.insecure else ("server.sh", "flwr.sh", "register.sh")
    declared = Declaration(replace(plan, organisations={}), {}, folder=str(out))
    yield from _scripts(declared, names, context)
    for name in ("README.md", "compose.yaml"):
        yield name, _rendered(name, context), _READABLE
    for name in ("covey-superlink.service", "covey-supernode@.service"):
        yield f"systemd/{name}", _rendered(name, context), _READABLE

    certificates = {} if plan.insecure else _certificates(plan.host, now)
    for name, content in certificates.items():
        yield name, content, _SECRET if name.endswith(".key") else _READABLE
    keys = {name: NodeKey.new(name) for name in plan.nodes}
    shared = {"peers": b"".join(key.public for key in keys.values())}
    if certificates:
        shared["ca.crt"] = certificates[_AUTHORITY]
    # the server's database and keys are none of a node's business
    theirs = {key: value for key, value in settings.items() if key != "ledger"}
    theirs["population"] = {**settings["population"], "organisations": ""}
    theirs["secrets"] = {"source": settings["secrets"]["source"]}
    shared["covey.toml"] = _toml(theirs)
    for name, key in keys.items():
        own = {**context, "name": name, "seed": secrets.randbits(63)}
        only = replace(plan, nodes=(name,), organisations={})
        declared = Declaration(only, {}, node_port=plan.node_port(name))
        readable = [(path, content, _READABLE) for path, content in shared.items()]
        for path, content, mode in (
            *readable,
            ("key", key.private, _SECRET),
            ("key.pub", key.public, _READABLE),
            ("node.toml", _rendered("node.toml", own), _SECRET),
            *_scripts(declared, ("start.sh",), own),
        ):
            yield f"nodes/{name}/{path}", content, mode


def _scripts(declared: Declaration, names: Iterable[str], context: dict[str, Any]) -> _Files:
    """Yield scripts, and the declaration with the hash of each."""
    scripts = {name: _rendered(name, context) for name in names}
    for name, content in scripts.items():
        yield name, content, _SCRIPT
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in scripts.items()}
    yield DECLARATION, replace(declared, scripts=hashes).toml(), _READABLE


def _app(out: Path, plan: Plan) -> _Files:
    """Give Flower its app: two imports, since covey is installed on every machine."""
    app = {
        "publisher": "covey",
        "fab-include": ["coveyapp/**/*.py"],
        "components": {
            "serverapp": "coveyapp.server_app:app",
            "clientapp": "coveyapp.client_app:app",
        },
        "config": {
            "config": str(out / "covey.toml"),
            "out": str(out / "runs" / "federation"),
            "nodes": len(plan.nodes),
            "timeout": _ROUND_TIMEOUT,
            "names": ",".join(plan.nodes),
            # without authentication every start of a node makes a new key
            "binds-names": not plan.insecure,
        },
    }
    # no dependencies: Flower would fetch them, and torch with them
    project = {"name": "coveyapp", "version": "1.0.0", "license": "Apache-2.0"}
    text = _toml({"project": project, "tool": {"flwr": {"app": app}}})
    yield "app/pyproject.toml", text, _READABLE
    yield "app/coveyapp/__init__.py", b'"""A federation of covey, for Flower."""\n', _READABLE
    for side, file in (("server", "apps"), ("client", "client")):
        module = (
            f'"""The {side} of the federation."""\n\n'
            f"from covey.flower.{file} import {side}_app as app\n\n"
            f'__all__ = ["app"]\n'
        )
        yield f"app/coveyapp/{side}_app.py", module.encode(), _READABLE


def _toml(settings: dict[str, Any]) -> bytes:
    return tomli_w.dumps(settings).encode()


def _rendered(name: str, context: dict[str, Any]) -> bytes:
    environment = Environment(  # noqa: S701 - scripts and settings, not HTML
        loader=PackageLoader("covey.deploy"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(name).render(**context).encode()


_AUTHORITY = "certificates/ca.crt"
_AUTHORITY_LIFE = timedelta(days=3653)
_SERVER_LIFE = timedelta(days=730)
_CLOCK_SKEW = timedelta(hours=1)  # of a node whose clock is behind


def _certificates(host: str, now: datetime) -> dict[str, bytes]:
    """Make an authority that signs itself, and a server's certificate by it; PEM by file.

    The server's names `host` for the nodes, and this machine for the server's own
    processes. With the authority's key one can be the server, for every node.
    """
    root, server = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))

    def signed(
        name: str,
        key: ec.EllipticCurvePrivateKey,
        life: timedelta,
        *parts: tuple[x509.ExtensionType, bool],
    ) -> bytes:
        builder = x509.CertificateBuilder(
            issuer_name=_named("covey federation"),
            subject_name=_named(name),
            public_key=key.public_key(),
            serial_number=x509.random_serial_number(),
            not_valid_before=now - _CLOCK_SKEW,
            not_valid_after=now + life,
        )
        subject = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        for extension, critical in ((subject, False), *parts):
            builder = builder.add_extension(extension, critical)
        return builder.sign(root, SHA384()).public_bytes(Encoding.PEM)

    names = x509.SubjectAlternativeName(
        [_general(name) for name in dict.fromkeys((host, "localhost", "127.0.0.1"))]
    )
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(root.public_key())
    return {
        _AUTHORITY: signed(
            "covey federation",
            root,
            _AUTHORITY_LIFE,
            (x509.BasicConstraints(ca=True, path_length=0), True),
            (_usage("key_cert_sign"), True),
        ),
        "certificates/ca.key": _pem(root),
        "certificates/server.pem": signed(
            "covey server",
            server,
            _SERVER_LIFE,
            (x509.BasicConstraints(ca=False, path_length=None), True),
            (_usage("digital_signature"), True),
            (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
            (names, False),
            (issuer, False),
        ),
        "certificates/server.key": _pem(server),
    }


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


_USES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
    *("key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)


def _usage(use: str) -> x509.KeyUsage:
    return x509.KeyUsage(**{each: each == use for each in _USES})


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


@dataclass(frozen=True, slots=True)
class NodeKey:
    """A node's key pair, as `ssh-keygen -t ecdsa -b 384` writes it.

    With it a node joins and signs sums under masks, these with or without TLS
    (`covey.flower.identity`).
    """

    private: bytes
    public: bytes

    @classmethod
    def new(cls, name: str) -> "NodeKey":
        """Make one; the name is only its comment."""
        key = ec.generate_private_key(ec.SECP384R1())
        public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
        return cls(
            key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()),
            public + b" " + name.encode("ascii") + b"\n",
        )
