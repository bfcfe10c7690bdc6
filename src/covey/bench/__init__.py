"""Red teams held to the truth, on federations where the truth is known."""

from covey.bench.leaving import (
    PAPER,
    QUICK_LEAVING,
    Leaving,
    Outcome,
    outcomes,
    predicted,
)
from covey.bench.measure import SOURCES, Measured, Row, measured
from covey.bench.meter import Clock, Cost, Metered
from covey.bench.sets import FULL, QUICK, BenchSet
from covey.bench.shelf import found, put
from covey.bench.verdict import (
    NEAR,
    Check,
    Costs,
    Knowledge,
    checks,
    costs_of,
    error_of,
    is_right,
    knowledge,
)

__all__ = [
    "FULL",
    "NEAR",
    "PAPER",
    "QUICK",
    "QUICK_LEAVING",
    "SOURCES",
    "BenchSet",
    "Check",
    "Clock",
    "Cost",
    "Costs",
    "Knowledge",
    "Leaving",
    "Measured",
    "Metered",
    "Outcome",
    "Row",
    "checks",
    "costs_of",
    "error_of",
    "found",
    "is_right",
    "knowledge",
    "measured",
    "outcomes",
    "predicted",
    "put",
]
