from .page import write_page
from .play import Asked, records, reproduced
from .record import Cell, Found, Line, Printed, Record
from .shelf import Shelf, digest
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
    "digest",
    "experiment",
    "experiments",
    "records",
    "reproduced",
    "words",
    "write_page",
]
