"""Red teams held to the truth, on federations where the truth is known."""

from covey.bench.measure import SOURCES, Measured, Row, measured
from covey.bench.meter import Clock, Cost, Metered
from covey.bench.sets import FULL, QUICK, BenchSet
from covey.bench.shelf import found, put
from covey.bench.verdict import (
    Check,
    Costs,
    Knowledge,
    checks,
    costs_of,
    error_of,
    knowledge,
)

__all__ = [
    "FULL",
    "QUICK",
    "SOURCES",
    "BenchSet",
    "Check",
    "Clock",
    "Cost",
    "Costs",
    "Knowledge",
    "Measured",
    "Metered",
    "Row",
    "checks",
    "costs_of",
    "error_of",
    "found",
    "knowledge",
    "measured",
    "put",
]
