from .app import FAILED_CHECK, JsonOption, app, main, stated
from .commands import Row
from .progress import console, shown
from .runs import SetOption
from .tables import short, tabled

__all__ = [
    "FAILED_CHECK",
    "JsonOption",
    "Row",
    "SetOption",
    "app",
    "console",
    "main",
    "short",
    "shown",
    "stated",
    "tabled",
]
