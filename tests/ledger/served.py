"""A request that is being served."""

from covey.unlearning.proof import MeasuredFacts, Served
from covey.unlearning.proof_text import HeldRound, Influence, ValueOrReason

SERVED = Served(
    first=2,
    until=4,
    salt="00ff",
    facts=MeasuredFacts(
        asked="2030-01-01T12:00:00Z",
        subject="5b",
        answer="roll_back",
        model_before="a4",
        rounds=(HeldRound(2, 1, 3, ValueOrReason(0.5)),),
        deniability_threshold=3,
        min_anonymity=4,
        max_distance=None,
        first_round=0,
        first_affected_round=2,
        first_replayed_round=2,
        rounds_replayed=2,
        representative_probability=ValueOrReason(0.25),
        refutation=ValueOrReason(1.0),
        touched=(Influence(1, "risk", 0, 0.61),),
        secrets="seeded",
        raw_updates_deleted=ValueOrReason(None, "none were stored"),
        superseded_deleted={"states": 2},
        measured_before={"cluster": 1.0, "mia_accuracy": 0.6, "low": 0.5, "high": 0.7},
    ),
)
