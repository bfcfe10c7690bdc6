"""Leaving a run: what may be answered, what it costs, and what can be proved."""

from covey.unlearning.odds import Budget, budget, rollback_probability, settings_below
from covey.unlearning.participation import (
    Participation,
    latest_models,
    participation_of,
)
from covey.unlearning.plan import (
    ANSWERS,
    Option,
    Rules,
    at_risk,
    cheapest,
    options,
    sizes_left,
)
from covey.unlearning.proof import ChainView, verify
from covey.unlearning.signature import Check, signing_key, trusted_keys

__all__ = [
    "ANSWERS",
    "Budget",
    "ChainView",
    "Check",
    "Option",
    "Participation",
    "Rules",
    "at_risk",
    "budget",
    "cheapest",
    "latest_models",
    "options",
    "participation_of",
    "rollback_probability",
    "settings_below",
    "signing_key",
    "sizes_left",
    "trusted_keys",
    "verify",
]
