"""A client's most exposed records, as a page for the client alone."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from covey.atomic_io import make_folder, replace_whole
from covey.report.page import rendered

__all__ = ["write_exposed_records"]


def write_exposed_records(told: Mapping[str, Any], out: Path) -> Path:
    """Write the page to the file `out`, which its owner alone may read.

    It needs nothing beside it and no network.

    Args:
        told: as `covey records --json` prints it.
        out: the file.
    """
    make_folder(out.parent)
    content = rendered("exposed_records.html", {}, {"found": told})
    replace_whole(out, content, mode=0o600)
    return out
