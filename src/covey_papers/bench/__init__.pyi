from .calibration import calibration_figure
from .criteria import (
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
from .leaving import (
    PAPER,
    QUICK_LEAVING,
    Leaving,
    Outcome,
    outcomes,
    predicted,
)
from .measure import SOURCES, Measured, Row, measured
from .profiler import Clock, Cost, Metered
from .run_cache import found, put
from .scenarios import FULL, QUICK, BenchSet

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
    "calibration_figure",
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
