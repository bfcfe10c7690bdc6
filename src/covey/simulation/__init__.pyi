from .asking import Returning
from .auditing import DEFAULT_ATTACKS, Audit, AuditRequest, audit_run
from .departure import (
    Forgotten,
    Planned,
    explained,
    forget,
    plans,
    put_down,
)
from .desk import Desk, begun, opened, read_events, read_history
from .finished import is_finished
from .folder import RunFolder
from .leaving import Answered
from .loop import Observer, carry_on, play
from .planning import Plan, planned
from .recorded import RecordedRun, recorded_run, unplayed_reason
from .roster import Roster, Unreachable, reassembled
from .states import load_state

__all__ = [
    "DEFAULT_ATTACKS",
    "Answered",
    "Audit",
    "AuditRequest",
    "Desk",
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
