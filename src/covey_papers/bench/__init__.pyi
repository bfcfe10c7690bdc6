from .attacks import ATTACKS, LABEL_FLIP, Poisoned
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
from .poisoning import Suffered, means, suffered, suffered_by_all
from .poisoning_scenarios import (
    MERGES,
    POISONING,
    QUICK_POISONING,
    Cell,
    Merge,
    Poisoning,
    cells,
)
from .profiler import Clock, Cost, Metered
from .run_cache import found, put
from .scenarios import FULL, QUICK, BenchSet
from .solved_heads import HeadFigures, HeadMeans, agreement, head_figures, head_means
from .subtractions import SubtractionSize, Waited, waits

__all__ = [
    "ATTACKS",
    "FULL",
    "LABEL_FLIP",
    "MERGES",
    "NEAR",
    "PAPER",
    "POISONING",
    "QUICK",
    "QUICK_LEAVING",
    "QUICK_POISONING",
    "SOURCES",
    "BenchSet",
    "Cell",
    "Check",
    "Clock",
    "Cost",
    "Costs",
    "HeadFigures",
    "HeadMeans",
    "Knowledge",
    "Leaving",
    "Measured",
    "Merge",
    "Metered",
    "Outcome",
    "Poisoned",
    "Poisoning",
    "Row",
    "SubtractionSize",
    "Suffered",
    "Waited",
    "agreement",
    "calibration_figure",
    "cells",
    "checks",
    "costs_of",
    "error_of",
    "found",
    "head_figures",
    "head_means",
    "is_right",
    "knowledge",
    "means",
    "measured",
    "outcomes",
    "predicted",
    "put",
    "suffered",
    "suffered_by_all",
    "waits",
]
