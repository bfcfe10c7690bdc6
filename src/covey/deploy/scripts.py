"""Reading back what the scripts of a federation do."""

import shlex
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from covey.bounded_io import read_text
from covey.deploy.plan import CONNECTION
from covey.errors import RunError

__all__ = ["DAMAGE", "Script", "connection_of", "host_and_port"]

DAMAGE = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""What looking for a setting in a damaged TOML file raises."""


@dataclass(frozen=True, slots=True)
class Script:
    """The words of a shell script, its comments left out."""

    path: Path
    words: tuple[str, ...]

    @classmethod
    def read(cls, path: Path) -> "Script":
        """Read one.

        Raises:
            RunError: it is not there, or not a script.
        """
        try:
            text = read_text(path)
            return cls(path, tuple(shlex.split(text, comments=True)))
        except (OSError, ValueError) as problem:
            raise RunError(
                f"{path} must be the script that covey wrote, but: {problem}. Write the "
                f"folder again with `covey deploy init`."
            ) from None

    def has(self, option: str) -> bool:
        """Say whether an option is given."""
        return option in self.words

    def value(self, option: str) -> str:
        """Return the word after an option; empty if there is none."""
        after = self.words.index(option) + 1 if self.has(option) else len(self.words)
        return self.words[after] if after < len(self.words) else ""


def connection_of(folder: Path) -> dict[str, Any]:
    """Return how `flwr` reaches the server: `address`, `root-certificates`, `insecure`.

    Raises:
        RunError: the folder does not tell.
    """
    path = folder / "flwr" / "config.toml"
    try:
        told = tomllib.loads(read_text(path))
        connection = told["superlink"][CONNECTION]
        host_and_port(connection["address"])
    except DAMAGE as problem:
        raise RunError(
            f"{path} must name the connection {CONNECTION!r} with an address HOST:PORT, "
            f"but: {problem!r}. Give the folder that `covey deploy init` wrote."
        ) from None
    return connection


def host_and_port(address: str) -> tuple[str, int]:
    """Return the two parts of HOST:PORT; ValueError where they are not."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)
