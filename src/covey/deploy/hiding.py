"""Whether the server of a new federation sees sums alone: where the settings allow it."""

from collections.abc import Mapping
from typing import Any

from covey.config import Config
from covey.errors import ConfigError

__all__ = ["with_secure_sums"]

FEWEST = 3
USUAL = 5
STAYING = 0.7
"""The share of the nodes that is enough for a sum: the others may drop out."""


def with_secure_sums(
    settings: dict[str, Any], given: Mapping[str, Any], nodes: int
) -> dict[str, Any]:
    """Return settings under which clients' numbers are sent under masks, if they can be.

    Args:
        settings: of a federation on Flower, every default filled in.
        given: what the file itself says: who says something of it is not overruled.
        nodes: how many there are. The smallest cohort leaves room for those who drop out.
    """
    said = given.get("privacy", {})
    least = said.get("min_cohort", max(FEWEST, min(USUAL, int(STAYING * nodes))))
    if "secure_sums" in said or nodes < least:
        return settings
    hidden = {"secure_sums": True, "min_cohort": least}
    wanted = {**settings, "privacy": {**settings["privacy"], **hidden}}
    try:
        Config.of(wanted)
    except ConfigError:
        return settings
    return wanted
