from .pages import on_record, page_of, page_over, reported
from .references import reference_of
from .run import Run, played

__all__ = [
    "Run",
    "on_record",
    "page_of",
    "page_over",
    "played",
    "reference_of",
    "reported",
]
