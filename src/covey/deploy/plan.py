"""Who takes part in a federation, where its server is, and how it is protected."""

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from covey.errors import ConfigError

__all__ = ["CONNECTION", "SWITCHES", "Plan"]

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
        return (
            f"[{self.host}]:{self.port}" if in_brackets else f"{self.host}:{self.port}"
        )

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
