"""What several of the written pages need of Markdown."""

import re
from collections.abc import Iterable


def escaped(text: str) -> str:
    """Return prose in which only code between backticks is marked up."""
    parts = re.split(r"(`[^`]*`)", text)
    kept = (part if part.startswith("`") else _plain(part) for part in parts)
    return "".join(kept).replace("|", r"\|")


def _plain(text: str) -> str:
    return re.sub(r"([<>*_\[\]$#])", r"\\\1", text)


def hidden_tree(addresses: Iterable[str]) -> str:
    """Return a toctree that only the sidebar shows."""
    entries = (f"/{each}" for each in addresses)
    return "\n".join(["```{toctree}", ":hidden:", "", *entries, "```"])


def with_autodoc(lines: Iterable[str]) -> str:
    """Return a block of reStructuredText, in which Sphinx reads docstrings."""
    return "\n".join(["```{eval-rst}", *lines, "```"])
