from .entry import RunEntry, RunState
from .finding import found_runs, named_run
from .pruning import Retention, prune, retention

__all__ = [
    "Retention",
    "RunEntry",
    "RunState",
    "found_runs",
    "named_run",
    "prune",
    "retention",
]
