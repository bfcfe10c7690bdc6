"""Leaving a run: what may be answered, what it costs, and what can be proved."""

from covey.unlearning.basis import answer_for, check_basis
from covey.unlearning.deniability_probability import (
    DeniabilityBudget,
    budget,
    rollback_probability,
    settings_below,
)
from covey.unlearning.jointly import (
    AnswerChoice,
    ReplayKind,
    WantedAnswer,
    choose_answers,
    replay_kind,
)
from covey.unlearning.participation import (
    Participation,
    latest_models,
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
from covey.unlearning.proof import ChainView, verify
from covey.unlearning.sealing import sealed, unsealed
from covey.unlearning.signature import Check, signing_key, trusted_keys

__all__ = [
    "ANSWERS",
    "AnswerChoice",
    "AnswerRules",
    "ChainView",
    "Check",
    "DeniabilityBudget",
    "Option",
    "Participation",
    "ReplayKind",
    "WantedAnswer",
    "answer_for",
    "at_risk",
    "budget",
    "cheapest",
    "check_basis",
    "choose_answers",
    "latest_models",
    "options",
    "participation_of",
    "replay_kind",
    "rollback_probability",
    "sealed",
    "settings_below",
    "signing_key",
    "sizes_left",
    "trusted_keys",
    "unsealed",
    "verify",
]
