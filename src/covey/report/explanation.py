"""What is held on one client, as a page to print and hand over."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from covey.report.page import rendered, write

__all__ = ["write_explanation"]


def write_explanation(told: Mapping[str, Any], run: str, out: Path) -> Path:
    """Write the page to the file `out`, needing nothing beside it and no network.

    Args:
        told: as `covey explain --json` prints it.
        run: the run's name.
        out: the file.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    write(out, rendered("explanation.html", {}, {**told, "run": run}))
    return out
