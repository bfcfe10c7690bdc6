"""Whose client each one is, as whoever runs a federation attests it: read from a file."""

import csv
import tomllib
from pathlib import Path

from covey.bounded_io import read_text
from covey.errors import ConfigError
from covey.types import ClientName

__all__ = ["read_organisations"]


def read_organisations(path: Path) -> dict[ClientName, str]:
    """Read `name, organisation` per client.

    A .csv file has these columns; a .toml file has `name = "organisation"`.

    Raises:
        ConfigError: naming the file, the client and what is wrong.
    """
    try:
        text = read_text(path)
        found = _from_csv(text) if path.suffix == ".csv" else tomllib.loads(text)
    except (OSError, KeyError, ValueError, RecursionError, csv.Error) as error:
        raise ConfigError(
            f"population.organisations must name a CSV file with columns name, "
            f'organisation, or a TOML file of name = "organisation"; {path} is neither: '
            f"{error!r}. Correct the file or the setting."
        ) from None
    return {name: _organisation(path, name, each) for name, each in found.items()}


def _from_csv(text: str) -> dict[ClientName, object]:
    rows = list(csv.DictReader(text.splitlines(), skipinitialspace=True))
    found: dict[ClientName, object] = {
        (row["name"] or "").strip(): row["organisation"] for row in rows
    }
    if len(found) < len(rows):
        raise ValueError("it names a client twice")
    return found


def _organisation(path: Path, name: ClientName, found: object) -> str:
    if not isinstance(found, str) or not found.strip():
        raise ConfigError(
            f"{path} must give {name} an organisation, as text, found {found!r}. Correct "
            f"this client's entry, or remove it."
        )
    return found.strip()
