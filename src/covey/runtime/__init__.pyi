from .asking import Returning
from .auditing import DEFAULT_ATTACKS, Audit, AuditRequest, audit_run
from .completed_run import Finished, finished, is_finished
from .federation_metadata import Roster, Unreachable, reassembled
from .folder import RunFolder
from .loop import Observer, carry_on, play
from .planning import Plan, planned
from .recorded import RecordedRun, recorded_run, unplayed_reason
from .session import Desk, begun, opened, read_events, read_history
from .state_io import load_state
from .unlearning_executor import Answered
from .unlearning_service import (
    Forgotten,
    Planned,
    explained,
    forget,
    plans,
    put_down,
)

__all__ = [
    "DEFAULT_ATTACKS",
    "Answered",
    "Audit",
    "AuditRequest",
    "Desk",
    "Finished",
    "Forgotten",
    "Observer",
    "Plan",
    "Planned",
    "RecordedRun",
    "Returning",
    "Roster",
    "RunFolder",
    "Unreachable",
    "audit_run",
    "begun",
    "carry_on",
    "explained",
    "finished",
    "forget",
    "is_finished",
    "load_state",
    "opened",
    "planned",
    "plans",
    "play",
    "put_down",
    "read_events",
    "read_history",
    "reassembled",
    "recorded_run",
    "unplayed_reason",
]
