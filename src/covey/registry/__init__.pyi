from .entry import RunEntry, RunState
from .finding import found_runs, named_run
from .pruning import Retention, prune, retention
from .replacing import delete_run

__all__ = [
    "Retention",
    "RunEntry",
    "RunState",
    "delete_run",
    "found_runs",
    "named_run",
    "prune",
    "retention",
]
