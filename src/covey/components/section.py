"""What every section of the settings is, and the types that its settings share."""

from collections.abc import Mapping
from numbers import Integral
from typing import Annotated, Any, cast

from pydantic import BaseModel, ConfigDict, Field, model_validator

__all__ = [
    "Count",
    "Dotted",
    "NotNegative",
    "Positive",
    "Range",
    "Section",
    "SettingsSection",
    "Share",
    "Shares",
    "Texts",
]

Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[int, Field(gt=0)]
Count = Annotated[int, Field(ge=0)]
NotNegative = Annotated[float, Field(ge=0)]
Dotted = Annotated[str, Field(pattern=r"^[\w.]+:\w+$")]
Range = Annotated[tuple[float, float], Field(strict=False)]  # TOML has lists alone
Shares = Annotated[tuple[Share, Share], Field(strict=False)]
Texts = Annotated[tuple[str, ...], Field(strict=False)]


class Section(BaseModel):
    """Frozen, and knows no other names."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class SettingsSection(Section):
    """A section of a run's settings; its types are strict.

    A text where a number belongs is a mistake, and so is `true`. A whole number may stand
    where a number with a point does.
    """

    model_config = ConfigDict(strict=True)

    @model_validator(mode="before")
    @classmethod
    def _whole(cls, settings: object) -> object:
        """Take the whole numbers of other libraries, like NumPy's, for Python's own."""
        if not isinstance(settings, Mapping):
            return settings
        values = cast("Mapping[Any, Any]", settings)
        return {
            key: int(value) if _counts_elsewhere(value) else value
            for key, value in values.items()
        }


def _counts_elsewhere(value: object) -> bool:
    """Say whether a value is another library's whole number."""
    return isinstance(value, Integral) and not isinstance(value, (bool, int))
