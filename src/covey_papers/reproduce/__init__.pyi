from .answered_runs import Leaving, Outcome, outcomes
from .page import write_page
from .record import Cell, Found, Line, Printed, Record
from .run_cache import Shelf, digest
from .runner import Asked, records, reproduced
from .specification import Experiment, experiment, experiments
from .table import COLUMNS, words

__all__ = [
    "COLUMNS",
    "Asked",
    "Cell",
    "Experiment",
    "Found",
    "Leaving",
    "Line",
    "Outcome",
    "Printed",
    "Record",
    "Shelf",
    "digest",
    "experiment",
    "experiments",
    "outcomes",
    "records",
    "reproduced",
    "words",
    "write_page",
]
