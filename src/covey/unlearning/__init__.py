"""Leaving a run: what may be answered, what it costs, and what can be proved."""

from covey.unlearning.basis import answer_for, check_basis
from covey.unlearning.deniability_probability import (
    budget,
    rollback_probability,
    settings_below,
)
from covey.unlearning.jointly import (
    AnswerChoice,
    WantedAnswer,
    choose_answers,
    replay_kind,
)
from covey.unlearning.key_files import (
    key_records,
    public_keys_path,
    revoke_key,
    rotate_key,
    signing_key,
)
from covey.unlearning.participation import (
    Participation,
    latest_models,
    latest_sums,
    participation_of,
)
from covey.unlearning.plan import (
    ANSWERS,
    AnswerRules,
    Option,
    at_risk,
    cheapest,
    options,
    sizes_left,
)
from covey.unlearning.sealing import sealed, unsealed
from covey.unlearning.signature import Check, KeyRecord
from covey.unlearning.verifying import ChainView, LedgerAnswer, verify

__all__ = [
    "ANSWERS",
    "AnswerChoice",
    "AnswerRules",
    "ChainView",
    "Check",
    "KeyRecord",
    "LedgerAnswer",
    "Option",
    "Participation",
    "WantedAnswer",
    "answer_for",
    "at_risk",
    "budget",
    "cheapest",
    "check_basis",
    "choose_answers",
    "key_records",
    "latest_models",
    "latest_sums",
    "options",
    "participation_of",
    "public_keys_path",
    "replay_kind",
    "revoke_key",
    "rollback_probability",
    "rotate_key",
    "sealed",
    "settings_below",
    "signing_key",
    "sizes_left",
    "unsealed",
    "verify",
]
