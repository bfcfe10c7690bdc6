"""What no proof can say, whatever a ledger holds: each row changes what others rest on."""

from dataclasses import replace
from typing import Any

import pytest

from covey.leaving.facts import Facts, HeldRound, Measurement, ValueOrReason, contradictions
from leaving.test_proof import (
    AFTER,
    CALIBRATED,
    DENIED,
    FIGURE,
    RETRAINED,
    ROLLED_BACK,
    every_answer,
)

STOPPED = replace(DENIED, answer="stop", rounds=())
FIRST, SECOND = DENIED.rounds
SMALL = ValueOrReason(0.5, "")
BACKWARDS = ValueOrReason(Measurement(replace(FIGURE, low=0.9), None), "")


@every_answer
def test_what_holds_together_is_no_contradiction(facts: Facts):
    assert contradictions(facts) == []


@pytest.mark.parametrize(
    ("facts", "changed", "wrong"),
    [
        (DENIED, {"answered": "2025-01-02T03:04:04Z"}, "answered"),
        (DENIED, {"model_after": AFTER}, "model_after"),
        (STOPPED, {"model_after": AFTER}, "model_after"),
        (DENIED, {"rounds": (HeldRound(0, 1, 1, SMALL), SECOND)}, "rounds"),
        (DENIED, {"rounds": (FIRST, HeldRound(4, 1, 1, SMALL))}, "rounds"),
        (DENIED, {"rounds": (SECOND, FIRST)}, "rounds"),
        (DENIED, {"rounds": (FIRST, FIRST)}, "rounds"),
        (DENIED, {"first_round": 1}, "first_round"),
        (DENIED, {"first_round": None}, "first_round"),
        (DENIED, {"deniability_threshold": None}, "deniability_threshold"),
        (DENIED, {"rounds_replayed": 1}, "first_replayed_round"),
        (DENIED, {"consistency": ("a" * 64,)}, "consistency"),
        (ROLLED_BACK, {"first_affected_round": 3}, "first_affected_round"),
        (ROLLED_BACK, {"first_affected_round": None}, "first_affected_round"),
        (ROLLED_BACK, {"rounds_replayed": 0}, "rounds_replayed"),
        (ROLLED_BACK, {"replayed": "calibrated"}, "replayed"),
        (RETRAINED, {"replayed": "recorded"}, "replayed"),
        (RETRAINED, {"sealed_record_kept": True}, "sealed_record_kept"),
        (CALIBRATED, {"measured": BACKWARDS}, "measured"),
        (STOPPED, {"superseded_deleted": {"pages": 1}}, "superseded_deleted"),
        (STOPPED, {"raw_updates_deleted": ValueOrReason(value=True, reason="")},
         "raw_updates_deleted"),
    ],
)  # fmt: skip
def test_what_contradicts_the_rest_is_named(facts: Facts, changed: dict[str, Any], wrong: str):
    assert contradictions(replace(facts, **changed)) == [wrong]
