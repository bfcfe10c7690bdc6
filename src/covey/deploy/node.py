"""What a node says of itself, in node.toml, and what a federation's scripts do."""

import shlex
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from covey.base.errors import ConfigError, DataError, RunError
from covey.base.files import read_text
from covey.components.registry import find
from covey.data.arrays import read_client
from covey.data.examples import Preference
from covey.data.population import weight_from_threshold
from covey.deploy.folder import CONNECTION
from covey.deploy.keys import Finding, error, fine, warning

Share = Annotated[float, Field(ge=0, le=1)]


class NodeFile(BaseModel):
    """What `node.toml` says: all that a client keeps on its own side.

    Attributes:
        name: of the client; the server calls it so.
        seed: all that the client draws follows from it, its holdout too.
        risk_threshold: tau, the highest risk it accepts; None: as the settings draw it.
        risk_weight: beta; None: it follows from tau.
        data: an .npz file with x and y, beside this one or elsewhere; "": the simulated
            client of this name, for trying things out.
        holdout: share of the examples that is never trained on; None: the settings'.
        tell_violation: whether the server learns, in one bit, that the chosen model is
            riskier than accepted.
        tell_accuracy: whether it learns the chosen model's accuracy on the holdout.
        leave: whether the client asks to be forgotten. Where sums are sent under masks, it
            then gives its own once, to be taken off.
        left: names of clients of which the owner knows that they have left: sums without
            them may be opened, and with earlier ones these tell of them.
        min_cohort: the fewest clients that a sum with its own may be over; None: as many
            as the settings say, which no node goes below.
        config: the federation's settings, beside this file or elsewhere.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: Annotated[str, Field(min_length=1)]
    seed: Annotated[int, Field(ge=0)]
    risk_threshold: Share | None = None
    risk_weight: Share | None = None
    data: str = ""
    holdout: Annotated[float, Field(ge=0, lt=1)] | None = None
    tell_violation: bool = False
    tell_accuracy: bool = False
    leave: bool = False
    left: list[str] = []
    min_cohort: Annotated[int, Field(ge=3)] | None = None
    config: str = "covey.toml"

    @classmethod
    def read(cls, path: Path) -> "NodeFile":
        """Read a node's file.

        Raises:
            ConfigError: it is missing or malformed.
        """
        try:
            return cls.model_validate(tomllib.loads(read_text(path)))
        except ValidationError as problem:
            raise ConfigError(f"{path}: {' '.join(_sentences(problem))}") from None
        except (OSError, ValueError, RecursionError) as problem:
            raise ConfigError(
                f"{path} must be a node's settings in TOML, as `covey deploy init` writes "
                f"them, but: {problem}. Correct it."
            ) from None

    @property
    def preference(self) -> Preference | None:
        """What the client accepts; None where the settings are to draw it."""
        tau = self.risk_threshold
        if tau is None:
            return None
        beta = self.risk_weight
        return Preference(weight_from_threshold(tau) if beta is None else beta, tau)


def _sentences(problem: ValidationError) -> Iterator[str]:
    for each in problem.errors():
        key = ".".join(map(str, each["loc"]))
        if each["type"] == "extra_forbidden":
            known = ", ".join(NodeFile.model_fields)
            yield f"expected {known}, found {key!r}. Remove it."
        elif each["type"] == "missing":
            yield f"expected {key}, found none. Add it."
        else:
            yield f"{key}: {each['msg']}, found {each['input']!r}. Correct it."


def settings_findings(path: Path) -> tuple[NodeFile | None, list[Finding]]:
    """Read node.toml: what it says, and what is wrong with it."""
    try:
        told = NodeFile.read(path)
    except ConfigError as problem:
        return None, [error(path.name, str(problem))]
    return told, [fine(path.name, f"complete, for {told.name}")]


def data_findings(
    told: NodeFile, settings: Mapping[str, Any] | None, folder: Path
) -> Iterator[Finding]:
    """Look for the node's examples.

    Args:
        told: what node.toml says.
        settings: the federation's; None if they cannot be read.
        folder: where node.toml is; a relative path starts there.
    """
    if not told.data:
        yield _simulated(told.name, settings)
        return
    path = folder / told.data
    try:
        examples = read_client(path)
    except DataError as problem:
        yield error("data", str(problem))
    else:
        yield fine("data", f"{len(examples):,} examples in {path}")


def _simulates(name: str) -> bool:
    """Say whether these data are shared out among clients with numbers for names."""
    return ":" not in name and find("data", name, "data.name").simulates


def _simulated(name: str, settings: Mapping[str, Any] | None) -> Finding:
    """Look at a node without data: it plays a simulated client, if there is one."""
    if settings is not None and _simulates(settings["data"]["name"]):
        last = settings["population"]["clients"] - 1
        if name not in (f"client-{index:05}" for index in range(last + 1)):
            return error(
                "data",
                f"expected an .npz file, or the name of a simulated client, client-00000 "
                f"to client-{last:05}, found neither: {name!r}. Set data in node.toml.",
            )
    return warning(
        "data",
        f"expected an .npz file, found none named: the node plays the simulated client "
        f"{name!r}. Set data in node.toml for real examples.",
    )


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
