"""Pages as HTML: templates, and how figures, ages and sizes are written."""

from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from covey.report import PROMISE
from covey.report.wording import estimate, number
from covey.types import round_number
from covey.version import __version__
from covey.web.charts import drawn, table_of

__all__ = ["STATIC", "page"]

STATIC = {
    "page.css": "text/css",
    "live.js": "text/javascript",
}

UNITS = ((86_400.0, "day"), (3_600.0, "hour"), (60.0, "minute"), (1.0, "second"))


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("covey.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["round_number"] = round_number
    environment.globals |= {
        "age": age,
        "drawn": drawn,
        "estimate": estimate,
        "form_token": "",  # forms are on no page, unless it says so
        "number": number,
        "promise": PROMISE,
        "since": since,
        "size": size,
        "table_of": table_of,
        "version": __version__,
    }
    return environment


def page(template: str, told: Mapping[str, Any]) -> str:
    """Return a page of `templates`."""
    return _pages.get_template(template).render(told)


def static(name: str) -> bytes:
    """Return a file that pages load."""
    return files("covey.web").joinpath("static", name).read_bytes()


def age(seconds: float | None) -> str:
    """Return how long ago something was, in its largest unit."""
    if seconds is None:
        return "unknown"
    for length, unit in UNITS:
        if (count := int(seconds // length)) >= 1:
            return f"{count} {unit}{'s' if count > 1 else ''} ago"
    return "just now"


def since(written_at: str | None) -> str:
    """Return how long ago a time of the ledger was."""
    if not written_at:
        return "unknown"
    try:
        then = datetime.fromisoformat(written_at)
    except ValueError:
        return "unknown"
    return age((datetime.now(UTC) - then).total_seconds())


def size(count: int) -> str:
    """Return a number of bytes as a person reads it."""
    value, units = float(count), iter(("B", "kB", "MB", "GB", "TB"))
    unit = next(units)
    while value >= 1000 and unit != "TB":
        value, unit = value / 1000, next(units)
    return (
        f"{value:.0f} {unit}" if value >= 10 or unit == "B" else f"{value:.1f} {unit}"
    )


_pages = _environment()
