"""The public object of a run: read it, carry it on, let clients leave it."""

from covey.runs.pages import on_record, page_of, page_over, reported
from covey.runs.parts import PYTHON
from covey.runs.proofs import verified
from covey.runs.references import reference_of
from covey.runs.run import Run, played

__all__ = [
    "PYTHON",
    "Run",
    "on_record",
    "page_of",
    "page_over",
    "played",
    "reference_of",
    "reported",
    "verified",
]
