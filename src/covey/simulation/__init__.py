"""Playing a run: the loop, its folder, and what it measures."""

from covey.simulation.asking import Returning
from covey.simulation.auditing import DEFAULT_ATTACKS, Audit, AuditRequest, audit_run
from covey.simulation.departure import (
    Forgotten,
    Planned,
    explained,
    forget,
    plans,
    put_down,
)
from covey.simulation.desk import Desk, begun, opened, read_events, read_history
from covey.simulation.finished import is_finished
from covey.simulation.folder import RunFolder
from covey.simulation.leaving import Answered
from covey.simulation.loop import Observer, carry_on, play
from covey.simulation.planning import Plan, planned
from covey.simulation.recorded import RecordedRun, recorded_run, unplayed_reason
from covey.simulation.roster import Roster, Unreachable, reassembled
from covey.simulation.states import load_state

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
