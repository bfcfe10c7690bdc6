from .asking import Returning
from .auditing import (
    DEFAULT_ATTACKS,
    Audit,
    AuditRequest,
    audit_run,
    named_attack,
    record_attacks,
)
from .changing import ChangedRecords, change_records, join_run
from .completed_run import CompletedRun, is_finished, load_completed
from .federation_metadata import FederationMetadata, Unreachable, rebuilt_run
from .folder import RunFolder
from .loop import Observer, continue_run, run_rounds
from .new_records import NewRecords
from .planning import UnlearningPlan, plan_for
from .played_round import ClientValues, OnRound, PlayedRound
from .recorded import RecordedRun, recorded_run, unplayed_reason
from .session import Session, open_or_create, open_session, read_events, read_history
from .state_io import load_state
from .unlearning_executor import AnsweredRequest
from .unlearning_service import (
    ClientPlan,
    ForgetResult,
    client_plans,
    enqueue_requests,
    explain_client,
    finish_requests,
    forget,
)

__all__ = [
    "DEFAULT_ATTACKS",
    "AnsweredRequest",
    "Audit",
    "AuditRequest",
    "ChangedRecords",
    "ClientPlan",
    "ClientValues",
    "CompletedRun",
    "FederationMetadata",
    "ForgetResult",
    "NewRecords",
    "Observer",
    "OnRound",
    "PlayedRound",
    "RecordedRun",
    "Returning",
    "RunFolder",
    "Session",
    "UnlearningPlan",
    "Unreachable",
    "audit_run",
    "change_records",
    "client_plans",
    "continue_run",
    "enqueue_requests",
    "explain_client",
    "finish_requests",
    "forget",
    "is_finished",
    "join_run",
    "load_completed",
    "load_state",
    "named_attack",
    "open_or_create",
    "open_session",
    "plan_for",
    "read_events",
    "read_history",
    "rebuilt_run",
    "record_attacks",
    "recorded_run",
    "run_rounds",
    "unplayed_reason",
]
