from .aggregate import means
from .auditing import audit_rows, write_audit
from .divergence import diverged_models, diverged_sentences
from .explanation import write_explanation
from .metrics_file import metrics_csv
from .page import rendered, write_report
from .queries import (
    OVERALL,
    Reported,
    accuracies,
    accuracy_lines,
    group_sizes,
    home_of,
)
from .run_comparison import comparison
from .run_summary import PROMISE, budget_of, summary
from .wording import spread

__all__ = [
    "OVERALL",
    "PROMISE",
    "Reported",
    "accuracies",
    "accuracy_lines",
    "audit_rows",
    "budget_of",
    "comparison",
    "diverged_models",
    "diverged_sentences",
    "group_sizes",
    "home_of",
    "means",
    "metrics_csv",
    "rendered",
    "spread",
    "summary",
    "write_audit",
    "write_explanation",
    "write_report",
]
