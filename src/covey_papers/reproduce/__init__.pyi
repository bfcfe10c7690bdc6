from .page import write_page
from .provenance import commit, machine
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
    "Line",
    "Printed",
    "Record",
    "Shelf",
    "commit",
    "digest",
    "experiment",
    "experiments",
    "machine",
    "records",
    "reproduced",
    "words",
    "write_page",
]
