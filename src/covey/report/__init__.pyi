from .aggregate import means
from .auditing import audit_rows, write_audit
from .divergence import diverged_models, diverged_sentences
from .explanation import write_explanation
from .metrics_file import metrics_csv
from .page import write_report
from .queries import Reported
from .run_comparison import comparison
from .run_summary import PROMISE, budget_of, summary
from .wording import spread

__all__ = [
    "PROMISE",
    "Reported",
    "audit_rows",
    "budget_of",
    "comparison",
    "diverged_models",
    "diverged_sentences",
    "means",
    "metrics_csv",
    "spread",
    "summary",
    "write_audit",
    "write_explanation",
    "write_report",
]
