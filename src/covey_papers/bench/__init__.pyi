from .anonymity_figure import sets_growth_figure
from .anonymity_scale import (
    SetsCost,
    SetsSize,
    SetsTightness,
    sets_cost,
    sets_cost_apart,
    sets_tightness,
)
from .attacks import AGAINST_MINORITY, ATTACKS, LABEL_FLIP, Flooded, Poisoned
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
from .forgetting import (
    NEVER,
    NOTHING,
    Forgotten,
    ForgottenRow,
    forgetting_checks,
    forgotten,
)
from .forgetting_data import FORGETTING, ForgettingSet
from .forgetting_figure import forgetting_figure
from .large_ledger import (
    AppendCost,
    LedgerCost,
    LedgerSize,
    OpenCost,
    Spent,
    ledger_cost,
    make_ledger,
    open_ledger,
)
from .leaving import (
    PAPER,
    QUICK_LEAVING,
    Leaving,
    Outcome,
    outcomes,
    predicted,
)
from .leaving_leaks import Leak, Leaked, leaked
from .measure import SOURCES, Measured, Row, measured
from .performance.comparison import Change, Comparison, changes
from .performance.memory import MEMORY
from .performance.scale import SCALE
from .performance.speed import SPEED, Measure
from .performance.timing import Effort
from .poisoning import Suffered, deviations, means, suffered, suffered_by_all
from .poisoning_scenarios import (
    MERGES,
    ON_MINORITY,
    POISONING,
    QUICK_POISONING,
    Cell,
    Merge,
    Poisoning,
    cells,
)
from .profiler import Clock, Cost, Metered
from .record_choices import ChoiceMeans, ChoiceOutcome, choice_means, choice_outcomes
from .record_risk import RecordPrecision, precisions
from .reference_traces import ReferenceTraces, play_references, read_references
from .run_cache import found, put
from .scenarios import FULL, QUICK, BenchSet
from .secure_rounds import SecureRoundCost, SecureRoundSize, secure_round_cost
from .streamed_memory import (
    StreamedMemory,
    StreamedSize,
    streamed_memory,
    streamed_memory_apart,
)
from .subtractions import SubtractionSize, Waited, waits
from .unlearning_epsilon import (
    ControlRange,
    EpsilonSummary,
    control_range,
    epsilons,
    summary_of,
)

__all__ = [
    "AGAINST_MINORITY",
    "ATTACKS",
    "FORGETTING",
    "FULL",
    "LABEL_FLIP",
    "MEMORY",
    "MERGES",
    "NEAR",
    "NEVER",
    "NOTHING",
    "ON_MINORITY",
    "PAPER",
    "POISONING",
    "QUICK",
    "QUICK_LEAVING",
    "QUICK_POISONING",
    "SCALE",
    "SOURCES",
    "SPEED",
    "AppendCost",
    "BenchSet",
    "Cell",
    "Change",
    "Check",
    "ChoiceMeans",
    "ChoiceOutcome",
    "Clock",
    "Comparison",
    "ControlRange",
    "Cost",
    "Costs",
    "Effort",
    "EpsilonSummary",
    "Flooded",
    "ForgettingSet",
    "Forgotten",
    "ForgottenRow",
    "Knowledge",
    "Leak",
    "Leaked",
    "Leaving",
    "LedgerCost",
    "LedgerSize",
    "Measure",
    "Measured",
    "Merge",
    "Metered",
    "OpenCost",
    "Outcome",
    "Poisoned",
    "Poisoning",
    "RecordPrecision",
    "ReferenceTraces",
    "Row",
    "SecureRoundCost",
    "SecureRoundSize",
    "SetsCost",
    "SetsSize",
    "SetsTightness",
    "Spent",
    "StreamedMemory",
    "StreamedSize",
    "SubtractionSize",
    "Suffered",
    "Waited",
    "calibration_figure",
    "cells",
    "changes",
    "checks",
    "choice_means",
    "choice_outcomes",
    "control_range",
    "costs_of",
    "deviations",
    "epsilons",
    "error_of",
    "forgetting_checks",
    "forgetting_figure",
    "forgotten",
    "found",
    "is_right",
    "knowledge",
    "leaked",
    "ledger_cost",
    "make_ledger",
    "means",
    "measured",
    "open_ledger",
    "outcomes",
    "play_references",
    "precisions",
    "predicted",
    "put",
    "read_references",
    "secure_round_cost",
    "sets_cost",
    "sets_cost_apart",
    "sets_growth_figure",
    "sets_tightness",
    "streamed_memory",
    "streamed_memory_apart",
    "suffered",
    "suffered_by_all",
    "summary_of",
    "waits",
]
