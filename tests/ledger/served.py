"""A request that is being served."""

from covey.leaving.facts import AnswerInProgress, AttackFigure, ValueOrReason
from covey.leaving.plan import Option

SERVED = AnswerInProgress(
    option=Option("roll_back", "", 2, 2, 2),
    until=4,
    salt="00ff",
    subject="5b",
    model_before="a4",
    measured_before=ValueOrReason(AttackFigure(1, 0.6, 0.5, 0.7), ""),
    updates_stored=False,
    superseded={"states": 2},
)
