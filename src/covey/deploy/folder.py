"""The folder of a federation: all that is started on the server and on each node."""

import secrets
import shlex
import shutil
import sysconfig
import tempfile
import tomllib
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import tomli_w
from jinja2 import Environment, PackageLoader, StrictUndefined

from covey.atomic_io import flush_folder, replace_whole
from covey.bounded_io import read_text
from covey.build import algorithm_of
from covey.components.built_ins import DEFAULTS, NEWCOMERS, ROBUST
from covey.components.registry import reference
from covey.config import Config, load_config
from covey.deploy.attesting import ORGANISATIONS, attested
from covey.deploy.hiding import with_secure_sums
from covey.deploy.keys import Authority, NodeKey
from covey.deploy.plan import CONNECTION, SWITCHES, Plan
from covey.engine.kinds.flower import FlowerNodes
from covey.errors import ConfigError

__all__ = [
    "ROUND_TIMEOUT",
    "bounds_newcomers",
    "federation_settings",
    "write_federation",
]

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
    yield (
        "app/coveyapp/__init__.py",
        b'"""A federation of covey, for Flower."""\n',
        READABLE,
    )
    for side in ("server", "client"):
        module = (
            f'"""The {side} of the federation."""\n\n'
            f"from covey.flower import {side}_app as app\n\n"
            f'__all__ = ["app"]\n'
        )
        yield f"app/coveyapp/{side}_app.py", module.encode(), READABLE


def _connection(out: Path, plan: Plan) -> dict[str, Any]:
    trust: dict[str, Any] = (
        {"insecure": True}
        if plan.insecure
        else {"root-certificates": str(out / "certificates" / "ca.crt")}
    )
    return {
        "superlink": {
            "default": CONNECTION,
            CONNECTION: {"address": plan.address, **trust},
        }
    }


def _certificates(authority: Authority, plan: Plan, now: datetime) -> Files:
    root, server = authority.pem(), authority.server(plan.host, now)
    yield "certificates/ca.crt", root.certificate, READABLE
    yield "certificates/ca.key", root.key, SECRET
    yield "certificates/server.pem", server.certificate, READABLE
    yield "certificates/server.key", server.key, SECRET
    for name in plan.nodes:
        yield f"nodes/{name}/ca.crt", root.certificate, READABLE


def _keys(plan: Plan) -> Files:
    """Give every node its key, and everybody's public one: `covey.flower.signing`.

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
