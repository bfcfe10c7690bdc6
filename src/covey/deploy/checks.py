"""Looking at a federation's folder, on the server or on a node, before it is started."""

import tomllib
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from covey.bounded_io import read_text
from covey.build import algorithm_of, masks_told, summed_up
from covey.config import Config
from covey.deploy.attesting import organisation_findings
from covey.deploy.certificates import authority_findings, server_findings
from covey.deploy.diagnostics import Finding, error, fine, warning
from covey.deploy.folder import bounds_newcomers, federation_settings
from covey.deploy.machine import (
    fork_server_finding,
    knock,
    node_port_findings,
    permission_findings,
    software_findings,
    switch_findings,
)
from covey.deploy.node import (
    data_findings,
    settings_findings,
)
from covey.deploy.scripts import DAMAGE, Script, connection_of, host_and_port
from covey.errors import CoveyError, RunError

__all__ = ["check"]

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
    answer = knock(
        connection["address"], None if script.has("--insecure") else authority
    )
    yield answer or fine(connection["address"], "nothing is there yet: start server.sh")


def _node(folder: Path, now: datetime) -> Iterator[Finding]:
    script = Script.read(folder / "start.sh")
    told, about_node = settings_findings(folder / "node.toml")
    settings, about_settings = _settings(
        folder / (told.config if told else "covey.toml")
    )
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
    elif (
        settings["merge"]["name"] == "mean" and settings["privacy"]["client_noise"] == 0
    ):
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
            "app",
            f"expected a Flower app in {path.parent}, found: {problem!r}. Restore it.",
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
