from .pages import on_record, page_of, page_over, reported
from .references import reference_of
from .run import Run, run_to_end

__all__ = [
    "Run",
    "on_record",
    "page_of",
    "page_over",
    "reference_of",
    "reported",
    "run_to_end",
]
