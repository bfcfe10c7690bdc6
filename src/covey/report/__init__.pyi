from .aggregate import means
from .attacks import (
    LOSS,
    attacks_on,
    final_exposure,
    final_risk,
    final_risks,
    strongest,
)
from .auditing import audit_rows, write_audit
from .divergence import diverged_models, diverged_sentences
from .explanation import write_explanation
from .exposed_records import write_exposed_records
from .frames import client_rows, frame_of
from .metrics_file import metrics_csv, round_rows
from .newest_round import (
    CLUSTERS_SHOWN,
    budget_told,
    count_told,
    risk_told,
    round_line,
    share_told,
)
from .page import rendered, write_report
from .queries import (
    OVERALL,
    Reported,
    accuracies,
    group_sizes,
    home_of,
    utility,
    utility_lines,
    utility_of,
)
from .run_comparison import comparison
from .run_summary import PROMISE, attack_figure, budget_of, summary, violations
from .tracked_figures import final_figures, replays, round_figures, told_settings
from .wording import by_attacks, early_end_told, spread

__all__ = [
    "CLUSTERS_SHOWN",
    "LOSS",
    "OVERALL",
    "PROMISE",
    "Reported",
    "accuracies",
    "attack_figure",
    "attacks_on",
    "audit_rows",
    "budget_of",
    "budget_told",
    "by_attacks",
    "client_rows",
    "comparison",
    "count_told",
    "diverged_models",
    "diverged_sentences",
    "early_end_told",
    "final_exposure",
    "final_figures",
    "final_risk",
    "final_risks",
    "frame_of",
    "group_sizes",
    "home_of",
    "means",
    "metrics_csv",
    "rendered",
    "replays",
    "risk_told",
    "round_figures",
    "round_line",
    "round_rows",
    "share_told",
    "spread",
    "strongest",
    "summary",
    "told_settings",
    "utility",
    "utility_lines",
    "utility_of",
    "violations",
    "write_audit",
    "write_explanation",
    "write_exposed_records",
    "write_report",
]
