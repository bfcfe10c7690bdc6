from .live import in_notebook, live_line
from .own_records import ExposedRecord, ExposedRecords, exposed_records
from .pages import on_record, page_of, page_over, reported
from .recovery import Examination, examine, repair
from .references import reference_of
from .run import Run, run_to_end
from .sweeps import Sweep, check_variant, concluded_sweep, variants_of
from .trackers import tracked

__all__ = [
    "Examination",
    "ExposedRecord",
    "ExposedRecords",
    "Run",
    "Sweep",
    "check_variant",
    "concluded_sweep",
    "examine",
    "exposed_records",
    "in_notebook",
    "live_line",
    "on_record",
    "page_of",
    "page_over",
    "reference_of",
    "repair",
    "reported",
    "run_to_end",
    "tracked",
    "variants_of",
]
