"""What is true of a run's models after each answer, in words."""

from collections.abc import Mapping

from covey.unlearning.plan import AnswerKind

__all__ = ["AFTERWARDS"]

AFTERWARDS: Mapping[AnswerKind, str] = {
    "deny": "nothing is removed from the model, which is unchanged; the client's update "
    "may have been the one used in any round, and each set that held it keeps at least "
    "x members",
    "subtract": "the models are solved from the sums over everybody else, whose clusters "
    "stay as they were chosen beside the client",
    "roll_back": "the model is as if the client had left before the first replayed "
    "round; the rounds before it still include the client",
    "retrain": "the model is the one of a run that never met the client",
    "calibrate": "the model is an approximation of one without the client",
}
