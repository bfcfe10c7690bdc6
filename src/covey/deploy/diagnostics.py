"""What a check found: one line with what was expected, what is there and what to do."""

from dataclasses import dataclass
from typing import Literal

__all__ = ["Finding", "error", "fine", "warning"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        level: an error keeps the federation from working, or from being what its
            folder promises; a warning is a choice to be aware of.
    """

    level: Literal["ok", "warning", "error"]
    about: str
    detail: str


def fine(about: str, detail: str) -> Finding:
    """Return what is as it should be."""
    return Finding("ok", about, detail)


def warning(about: str, detail: str) -> Finding:
    """Return what somebody should have chosen on purpose."""
    return Finding("warning", about, detail)


def error(about: str, detail: str) -> Finding:
    """Return what must be put right."""
    return Finding("error", about, detail)
