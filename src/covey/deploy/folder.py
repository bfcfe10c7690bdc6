"""The folder of a federation: who takes part, and all that is started on each machine."""

import ipaddress
import re
import secrets
import shlex
import shutil
import sysconfig
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import tomli_w
from jinja2 import Environment, PackageLoader, StrictUndefined

from covey.base.errors import ConfigError, CoveyError
from covey.base.files import flush_folder, read_text, replace_whole
from covey.build.aggregators import anonymity_of
from covey.build.training import algorithm_of
from covey.components.built_ins import DEFAULTS, NEWCOMERS, ROBUST
from covey.components.registry import reference
from covey.config.settings import Config, load_config
from covey.data.population import read_organisations
from covey.deploy.keys import Authority, Finding, NodeKey, error, fine
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

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
ORGANISATION = re.compile(r"""[^\s,'"]([^,'"\r\n]{0,98}[^\s,'"])?""")
HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
FIRST_NODE_PORT = 9094


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
            if not NAME.fullmatch(name):
                raise ConfigError(
                    f"--node takes a name of at most 63 letters, digits, '.', '_' and "
                    f"'-' that starts with a letter or digit, found {name!r}. Rename it."
                )
        if not self.nodes or len(set(self.nodes)) < len(self.nodes):
            raise ConfigError(
                f"A federation needs at least one --node, and each name once, found "
                f"{', '.join(self.nodes) or 'none'}. Name every client once."
            )
        self._check_organisations()
        if not 0 < self.port < 65536:
            raise ConfigError(
                f"--port takes a number from 1 to 65535, found {self.port}. Correct it."
            )
        if self.ip is None and not HOST.fullmatch(self.host):
            raise ConfigError(
                f"--host takes the name or address under which the nodes reach the "
                f"server, found {self.host!r}. Leave out the port, and what is before "
                f"'//'."
            )

    def _check_organisations(self) -> None:
        if strangers := sorted(self.organisations.keys() - set(self.nodes)):
            raise ConfigError(
                f"An organisation is attested for a client that takes part, found one of "
                f"{strangers[0]!r}, which is no --node. Correct the name."
            )
        for name, organisation in self.organisations.items():
            if not ORGANISATION.fullmatch(organisation):
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
        return FIRST_NODE_PORT + self.nodes.index(name)


FEWEST = 3
USUAL = 5
STAYING = 0.7
"""The share of the nodes that is enough for a sum: the others may drop out."""


def with_secure_sums(
    settings: dict[str, Any], given: Mapping[str, Any], nodes: int
) -> dict[str, Any]:
    """Return settings under which clients' numbers are sent under masks, if they can be.

    Args:
        settings: of a federation on Flower, every default filled in.
        given: what the file itself says: who says something of it is not overruled.
        nodes: how many there are. The smallest cohort leaves room for those who drop out.
    """
    said = given.get("privacy", {})
    least = said.get("min_cohort", max(FEWEST, min(USUAL, int(STAYING * nodes))))
    if "secure_sums" in said or nodes < least:
        return settings
    hidden = {"secure_sums": True, "min_cohort": least}
    wanted = {**settings, "privacy": {**settings["privacy"], **hidden}}
    try:
        Config.of(wanted)
    except ConfigError:
        return settings
    return wanted


ORGANISATIONS = "organisations.csv"
"""Whose client each one is: the operator's word, which no node can change."""


def attested(settings: dict[str, Any], out: Path, plan: Plan) -> Plan:
    """Return the plan with the organisations of its nodes; the settings name their file."""
    told = settings["population"]["organisations"]
    known = read_organisations(Path(told)) if told else {}
    known = {name: known[name] for name in plan.nodes if name in known}
    plan = replace(plan, organisations={**known, **plan.organisations})
    least = _least(settings)
    lacking = [name for name in plan.nodes if name not in plan.organisations]
    if least > 1 and lacking:
        raise ConfigError(
            f"merge.min_organisations = {least} needs to know whose client each node is, "
            f"found nothing of {lacking[0]!r}. Say --organisation {lacking[0]}=WHOSE."
        )
    if least > (found := len(set(plan.organisations.values()))) > 0:
        raise ConfigError(
            f"merge.min_organisations must be at most as many organisations as there are, "
            f"{found}, found {least}. Lower it."
        )
    if plan.organisations:
        settings["population"]["organisations"] = str(out / ORGANISATIONS)
    return plan


def organisation_findings(settings: dict[str, Any], nodes: Sequence[str]) -> Iterator[Finding]:
    """Look whether the file of organisations says of every node what the merge needs."""
    told, least = settings["population"]["organisations"], _least(settings)
    if not told:
        if least > 1:
            found = (
                f"expected population.organisations, as merge.min_organisations = "
                f"{least} needs it, found none: no node would be let in. Name the file."
            )
            yield error("organisations", found)
        return
    try:
        known = read_organisations(Path(told))
    except CoveyError as problem:
        yield error("organisations", str(problem))
        return
    lacking = [name for name in nodes if name not in known]
    present = {known[name] for name in nodes if name in known}
    if least > 1 and lacking:
        found = (
            f"expected whose client each node is in {told}, found nothing of "
            f"{lacking[0]!r}, which would not be let in. Add a line for it."
        )
        yield error("organisations", found)
    elif least > len(present):
        found = (
            f"expected {least} organisations, as merge.min_organisations says, found "
            f"{len(present)}: no set would be complete. Correct {told}, or lower it."
        )
        yield error("organisations", found)
    else:
        yield fine("organisations", "it is known whose client each node is")


def _least(settings: dict[str, Any]) -> int:
    terms = anonymity_of(Config.of(settings))
    return terms.min_organisations if terms else 1


ROUND_TIMEOUT = 600
"""Seconds that a round waits for a node."""

SECRET, SCRIPT, READABLE = 0o600, 0o700, 0o644

Files = Iterator[tuple[str, bytes, int]]
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
    _refuse_taken(out)
    plan = attested(settings, out, plan)
    out.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}."))
    try:
        for path, content, mode in _files(settings, out, plan, now):
            place = unfinished / path
            _private_folders(unfinished, place.parent)
            replace_whole(place, content, mode)
        if out.is_dir():  # an empty one, which Windows does not replace
            out.rmdir()
        unfinished.rename(out)
    except BaseException:
        shutil.rmtree(unfinished)
        raise
    flush_folder(out.parent)
    return out


def federation_settings(config: Path, nodes: int = 0) -> dict[str, Any]:
    """Return a file's settings for a federation on Flower, every default filled in.

    Secrets are random ones, unless the file itself says where they come from. Updates are
    merged robustly, unless the file has a section `merge`, or noise on their sums, or an
    algorithm without updates. Who enters a cluster is bounded, unless the file says so
    itself (`bounds_newcomers`). Of a new federation the server sees sums alone, where the
    settings and so many nodes allow it.

    Raises:
        ConfigError: naming the key, the value and the remedy.
    """
    engine = f"engine.name={reference(FlowerNodes())}"
    wanted = [engine]
    usual = load_config(config, wanted)
    given = tomllib.loads(read_text(config))
    hidden = usual.privacy.client_noise > 0
    if "merge" not in given and not hidden and not algorithm_of(usual).subtracts:
        wanted.append(f"merge.name={ROBUST}")
        usual = load_config(config, wanted)
    if "max_newcomers" not in given.get("method", {}) and bounds_newcomers(usual):
        usual = load_config(config, [*wanted, f"method.max_newcomers={NEWCOMERS}"])
    settings = usual.model_dump(mode="json")
    if "source" not in given.get("secrets", {}):
        settings["secrets"]["source"] = "os"
    return with_secure_sums(settings, given, nodes)


def bounds_newcomers(config: Config) -> bool:
    """Say whether a bound on who enters a cluster helps, and honest clients hardly meet it.

    A mean is lost to one of them. Random models and part of the clients make few founders.
    Who weighs a cluster's risk moves late and honestly, and would sit out.
    """
    return (
        algorithm_of(config).enters_at_will
        and config.train.participation == 1
        and config.merge.name != DEFAULTS["aggregation"]
    )


def _refuse_taken(out: Path) -> None:
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


def _private_folders(root: Path, folder: Path) -> None:
    """Make the folders between, each for its owner alone."""
    for inner in reversed([folder, *folder.parents]):
        if inner.is_relative_to(root):
            inner.mkdir(mode=0o700, exist_ok=True)


def _files(settings: dict[str, Any], out: Path, plan: Plan, now: datetime) -> Files:
    told = {
        "plan": plan,
        "out": out,
        "switches": SWITCHES,
        "connection": CONNECTION,
        "programs": sysconfig.get_path("scripts"),
        "timeout": ROUND_TIMEOUT,
        "privacy": settings["privacy"],
    }
    authority = None if plan.insecure else Authority.new(now)
    yield "covey.toml", _toml(settings), READABLE
    if plan.organisations:
        rows = [("name", "organisation"), *sorted(plan.organisations.items())]
        text = "".join(f"{name},{organisation}\n" for name, organisation in rows)
        yield ORGANISATIONS, text.encode(), SECRET
    yield from _app(out, plan)
    yield "flwr/config.toml", _toml(_connection(out, plan)), READABLE
    yield from _keys(plan)
    if authority is not None:
        yield from _certificates(authority, plan, now)
        yield "register.sh", _rendered("register.sh", told), SCRIPT
    for name in ("server.sh", "flwr.sh"):
        yield name, _rendered(name, told), SCRIPT
    for name in ("README.md", "compose.yaml"):
        yield name, _rendered(name, told), READABLE
    for name in ("covey-superlink.service", "covey-supernode@.service"):
        yield f"systemd/{name}", _rendered(name, told), READABLE
    for name in plan.nodes:
        for path, content, mode in _node(settings, told, name):
            yield f"nodes/{name}/{path}", content, mode


def _app(out: Path, plan: Plan) -> Files:
    """Give Flower its app: two imports, since covey is installed on every machine."""
    project = {
        # no dependencies: Flower would fetch them, and torch with them
        "project": {"name": "coveyapp", "version": "1.0.0", "license": "Apache-2.0"},
        "tool": {
            "flwr": {
                "app": {
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
                        "timeout": ROUND_TIMEOUT,
                        "names": ",".join(plan.nodes),
                        # without authentication every start of a node makes a new key
                        "binds-names": not plan.insecure,
                    },
                }
            }
        },
    }
    yield "app/pyproject.toml", _toml(project), READABLE
    yield ("app/coveyapp/__init__.py", b'"""A federation of covey, for Flower."""\n', READABLE)
    for side, file in (("server", "apps"), ("client", "client")):
        module = (
            f'"""The {side} of the federation."""\n\n'
            f"from covey.flower.{file} import {side}_app as app\n\n"
            f'__all__ = ["app"]\n'
        )
        yield f"app/coveyapp/{side}_app.py", module.encode(), READABLE


def _connection(out: Path, plan: Plan) -> dict[str, Any]:
    trust: dict[str, Any] = (
        {"insecure": True}
        if plan.insecure
        else {"root-certificates": str(out / "certificates" / "ca.crt")}
    )
    return {"superlink": {"default": CONNECTION, CONNECTION: {"address": plan.address, **trust}}}


def _certificates(authority: Authority, plan: Plan, now: datetime) -> Files:
    root, server = authority.pem(), authority.server(plan.host, now)
    yield "certificates/ca.crt", root.certificate, READABLE
    yield "certificates/ca.key", root.key, SECRET
    yield "certificates/server.pem", server.certificate, READABLE
    yield "certificates/server.key", server.key, SECRET
    for name in plan.nodes:
        yield f"nodes/{name}/ca.crt", root.certificate, READABLE


def _keys(plan: Plan) -> Files:
    """Give every node its key, and everybody's public one: `covey.flower.identity`.

    They sign sums under masks, with or without TLS.
    """
    keys = {name: NodeKey.new(name) for name in plan.nodes}
    peers = b"".join(key.public for key in keys.values())
    for name, key in keys.items():
        yield f"nodes/{name}/key", key.private, SECRET
        yield f"nodes/{name}/key.pub", key.public, READABLE
        yield f"nodes/{name}/peers", peers, READABLE


def _node(settings: dict[str, Any], told: dict[str, Any], name: str) -> Files:
    """Give a node what is carried to its machine, and nothing of the server's."""
    told = {**told, "name": name, "seed": secrets.randbits(63)}
    # the server's database and keys are none of a node's business
    theirs = {key: value for key, value in settings.items() if key != "ledger"}
    theirs["population"] = {**settings["population"], "organisations": ""}
    theirs["secrets"] = {"source": settings["secrets"]["source"]}
    yield "covey.toml", _toml(theirs), READABLE
    yield "node.toml", _rendered("node.toml", told), SECRET
    yield "start.sh", _rendered("start.sh", told), SCRIPT


def _toml(settings: dict[str, Any]) -> bytes:
    return tomli_w.dumps(settings).encode()


def _rendered(name: str, told: dict[str, Any]) -> bytes:
    environment = Environment(  # noqa: S701 - scripts and settings, not HTML
        loader=PackageLoader("covey.deploy"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["quoted"] = lambda value: shlex.quote(str(value))
    return environment.get_template(name).render(**told).encode()
