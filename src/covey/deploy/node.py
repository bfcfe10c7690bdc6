"""What a node says of itself, in node.toml."""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from covey.bounded_io import read_text
from covey.components.registry import find
from covey.data import Preference, read_client, weight_from_threshold
from covey.deploy.diagnostics import Finding, error, fine, warning
from covey.errors import ConfigError, DataError

__all__ = ["NodeFile", "data_findings", "settings_findings"]

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
