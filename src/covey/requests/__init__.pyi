from .answering import RunOutcome, answer_cases
from .case import ITEM_KINDS, Case, CaseState, Item
from .closing import close_case
from .dates import day_of, due_date, months_after
from .intake import add_case, add_item, extend_case, sign_items
from .letters import Letter, write_letters
from .needed import needed_runs
from .plans import CasePlan, Load, Plan, RunPlan, plan_answers
from .register import ERASED, Register, read_register, register_at
from .replacing import delete_run

__all__ = [
    "ERASED",
    "ITEM_KINDS",
    "Case",
    "CasePlan",
    "CaseState",
    "Item",
    "Letter",
    "Load",
    "Plan",
    "Register",
    "RunOutcome",
    "RunPlan",
    "add_case",
    "add_item",
    "answer_cases",
    "close_case",
    "day_of",
    "delete_run",
    "due_date",
    "extend_case",
    "months_after",
    "needed_runs",
    "plan_answers",
    "read_register",
    "register_at",
    "sign_items",
    "write_letters",
]
