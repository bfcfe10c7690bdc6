"""What part of its records a client leaves out, as a text says it."""

import re

__all__ = ["WITHHELD_SHARE", "WITHHELD_SHARE_PATTERN", "share_to_withhold"]

WITHHELD_SHARE = "a share of 0% to 50% like 'most-exposed 2%'"
"""What is expected, in words."""

WITHHELD_SHARE_PATTERN = r"most-exposed ([0-4]?\d(\.\d+)?|50(\.0+)?)%"


def share_to_withhold(told: str) -> float:
    """Return the share of its records that a client leaves out, from 0 to 1/2.

    Raises:
        ValueError: the text says no such share.
    """
    found = re.fullmatch(WITHHELD_SHARE_PATTERN, told)
    if found is None:
        raise ValueError(f"expected {WITHHELD_SHARE}, found {told!r}")
    return float(found[1]) / 100
