"""What clients accept: drawn at random, or read from a file."""

import csv
import tomllib
from collections.abc import Mapping
from pathlib import Path

from covey.bounded_io import read_text
from covey.data.examples import Preference
from covey.errors import ConfigError
from covey.types import ClientName

__all__ = ["read_preferences", "weight_from_threshold"]

Row = Mapping[str, object]


def weight_from_threshold(risk_threshold: float) -> float:
    """Return beta = clip((0.8 - tau) / 0.3, 0, 1): a low threshold means a high weight."""
    return min(1.0, max(0.0, (0.8 - risk_threshold) / 0.3))


def read_preferences(path: Path) -> dict[ClientName, Preference]:
    """Read `name, risk_threshold` and optionally `risk_weight` per client.

    A .csv file has these columns; a .toml file a table per client. A weight that is not
    given follows from the threshold.

    Raises:
        ConfigError: naming the file, the client and what is wrong.
    """
    try:
        text = read_text(path)
        rows = _from_csv(text) if path.suffix == ".csv" else tomllib.loads(text)
    except (
        OSError,
        KeyError,
        ValueError,
        AttributeError,
        RecursionError,
        csv.Error,
    ) as error:
        raise ConfigError(
            f"population.preferences must name a CSV file with columns name, "
            f"risk_threshold, risk_weight, or a TOML file with a table per client; "
            f"{path} is neither: {error}. Correct the file or the setting."
        ) from None
    return {name: _preference(path, name, row) for name, row in rows.items()}


def _threshold_of(row: object) -> tuple[float, Row]:
    """Return the threshold of a client's entry, and the entry."""
    if not isinstance(row, Mapping):
        raise TypeError(f"{row!r} is no table")
    return float(str(row["risk_threshold"])), row


def _from_csv(text: str) -> dict[ClientName, Row]:
    return {
        row["name"].strip(): {key: value for key, value in row.items() if value}
        for row in csv.DictReader(text.splitlines(), skipinitialspace=True)
    }


def _preference(path: Path, name: ClientName, found: object) -> Preference:
    try:
        threshold, row = _threshold_of(found)
        weight = float(str(row.get("risk_weight", weight_from_threshold(threshold))))
    except (KeyError, ValueError, TypeError) as error:
        raise ConfigError(
            f"{path} must give {name} a number risk_threshold, found {found!r} "
            f"({error}). Correct this client's entry."
        ) from None
    if not (0 <= threshold <= 1 and 0 <= weight <= 1):
        raise ConfigError(
            f"{path} gives {name} risk_threshold {threshold:g} and risk_weight "
            f"{weight:g}, but both lie in [0, 1]. Correct this client's entry."
        )
    return Preference(weight, threshold)
