from .pages import on_record, page_of, page_over, reported
from .recovery import Examination, examine, repair
from .references import reference_of
from .run import Run, run_to_end

__all__ = [
    "Examination",
    "Run",
    "examine",
    "on_record",
    "page_of",
    "page_over",
    "reference_of",
    "repair",
    "reported",
    "run_to_end",
]
