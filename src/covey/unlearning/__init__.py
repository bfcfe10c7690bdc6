"""Leaving a run: what may be answered, what it costs, and what can be proved."""

from covey.unlearning.basis import answer_for, check_basis
from covey.unlearning.deniability_probability import (
    Budget,
    budget,
    rollback_probability,
    settings_below,
)
from covey.unlearning.jointly import Choice, How, Wish, jointly, replayed_as
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
from covey.unlearning.sealing import sealed, unsealed
from covey.unlearning.signature import Check, signing_key, trusted_keys

__all__ = [
    "ANSWERS",
    "Budget",
    "ChainView",
    "Check",
    "Choice",
    "How",
    "Option",
    "Participation",
    "Rules",
    "Wish",
    "answer_for",
    "at_risk",
    "budget",
    "cheapest",
    "check_basis",
    "jointly",
    "latest_models",
    "options",
    "participation_of",
    "replayed_as",
    "rollback_probability",
    "sealed",
    "settings_below",
    "signing_key",
    "sizes_left",
    "trusted_keys",
    "unsealed",
    "verify",
]
