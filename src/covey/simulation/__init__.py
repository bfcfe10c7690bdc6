"""Playing a run: the loop, its folder, and what it measures."""

from covey.simulation.auditing import DEFAULT_ATTACKS, Audit, AuditRequest, audit_run
from covey.simulation.folder import RunFolder
from covey.simulation.loop import Observer, play, read_events
from covey.simulation.states import load_state

__all__ = [
    "DEFAULT_ATTACKS",
    "Audit",
    "AuditRequest",
    "Observer",
    "RunFolder",
    "audit_run",
    "load_state",
    "play",
    "read_events",
]
