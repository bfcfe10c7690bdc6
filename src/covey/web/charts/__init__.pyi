from .drawing import Drawing, drawn
from .plot import Level, Line, Number, Plot, Point, Table, table_of, thinned

__all__ = [
    "Drawing",
    "Level",
    "Line",
    "Number",
    "Plot",
    "Point",
    "Table",
    "drawn",
    "table_of",
    "thinned",
]
