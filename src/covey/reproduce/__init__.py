"""Both papers, table by table, beside what covey measures."""

from covey.reproduce.experiment import Experiment, experiment, experiments
from covey.reproduce.page import write_page
from covey.reproduce.play import Asked, records, reproduced
from covey.reproduce.record import Cell, Found, Line, Printed, Record
from covey.reproduce.shelf import Shelf, digest
from covey.reproduce.table import COLUMNS, words

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
