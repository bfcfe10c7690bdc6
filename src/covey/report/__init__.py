"""The only reader of a run: one JSON object, one page, one table over several runs."""

from covey.report.auditing import audit_rows, write_audit
from covey.report.comparison import comparison
from covey.report.divergence import diverged_models, diverged_sentences
from covey.report.explanation import write_explanation
from covey.report.metrics_file import metrics_csv
from covey.report.page import write_report
from covey.report.reading import Reported
from covey.report.seeds import means
from covey.report.summary import PROMISE, budget_of, summary
from covey.report.wording import spread

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
