"""What a node decides by itself, in node.toml."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from covey import ConfigError
from covey.base.files import read_text
from covey.data.examples import Preference
from covey.data.population import weight_from_threshold

_Share = Annotated[float, Field(ge=0, le=1)]


class NodeFile(BaseModel):
    """What `node.toml` says: all that a client keeps on its own side.

    Attributes:
        name: of the client; the server calls it so.
        seed: all that the client draws follows from it, its holdout too.
        risk_threshold: tau, the highest risk it accepts; None: as the settings draw it.
        risk_weight: beta; None: it follows from tau.
        epsilon_limit: what all answers of this node together may cost, over all runs, at the
            settings' delta: then it answers no more; None: it has no budget.
        repeats: how often all rounds of the settings may be played once more: for clients that
            left, after a crash, or in another run.
        data: an .npz file with x and y, or a .csv table with a column of labels, beside this
            one or elsewhere; "": the simulated client of this name, for trying things out.
        holdout: share of the examples that is never trained on; None: the settings'.
        report_violation: whether the server learns, in one bit, that the chosen model is
            riskier than accepted.
        report_accuracy: whether it learns the chosen model's accuracy on the holdout.
        leave: whether the client asks to be forgotten. Where sums are sent under masks, it
            then gives its own once, to be taken off.
        left: names of clients that have left, as the owner attests: sums without
            them may be opened, and with earlier ones these reveal theirs.
        min_cohort: the fewest clients that a sum with its own may be over; None: as many
            as the settings say, which no node goes below.
        config: the federation's settings, beside this file or elsewhere.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: Annotated[str, Field(min_length=1)]
    seed: Annotated[int, Field(ge=0)]
    risk_threshold: _Share | None = None
    risk_weight: _Share | None = None
    epsilon_limit: Annotated[float, Field(gt=0)] | None = None
    repeats: Annotated[int, Field(ge=0)] = 1
    data: str = ""
    holdout: Annotated[float, Field(ge=0, lt=1)] | None = None
    report_violation: bool = False
    report_accuracy: bool = False
    leave: bool = False
    left: list[str] = []
    min_cohort: Annotated[int, Field(ge=3)] | None = None
    config: str = "covey.toml"

    @model_validator(mode="after")
    def _no_answers_without_noise(self) -> "NodeFile":
        if self.epsilon_limit is not None and (self.report_violation or self.report_accuracy):
            raise ValueError(
                "epsilon_limit pays for no answer without noise: report_violation and "
                "report_accuracy must be false, found true: remove them, or the limit"
            )
        return self

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
                f"{path} must be TOML as of `covey deploy init`, found {problem}: correct it."
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
    for error in problem.errors():
        key = ".".join(map(str, error["loc"]))
        if not key:  # two keys that do not go together
            yield f"{error['msg']}."
        elif error["type"] == "extra_forbidden":
            known = ", ".join(NodeFile.model_fields)
            yield f"expected {known}, found {key!r}. Remove it."
        elif error["type"] == "missing":
            yield f"expected {key}, found none. Add it."
        else:
            yield f"{key}: {error['msg']}, found {error['input']!r}. Correct it."
