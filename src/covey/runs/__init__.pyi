from .pages import on_record, page_of, page_over, reported
from .parts import PYTHON
from .references import reference_of
from .run import Run, played

__all__ = [
    "PYTHON",
    "Run",
    "on_record",
    "page_of",
    "page_over",
    "played",
    "reference_of",
    "reported",
]
