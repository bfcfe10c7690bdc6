"""Joint answers to several requests at once.

Each is judged as if those before it had left already, so that no set loses two members
and is counted for each of them alone. Whoever needs a replay shares one, which starts
where the earliest of them starts; those who are subtracted have one of their own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from covey.errors import RunError
from covey.types import Basis, Handle
from covey.unlearning.basis import answer_for
from covey.unlearning.participation import Participation
from covey.unlearning.plan import AnswerRules, Option, options

__all__ = [
    "AnswerChoice",
    "ReplayKind",
    "WantedAnswer",
    "choose_answers",
    "replay_kind",
]

ReplayKind = Literal["recorded", "anew", "calibrated", "subtracted"]
"""The others keep the clusters that are recorded, choose anew, or only calibrate; or they
are not asked at all, since their sums are known ("subtracted")."""

REPLAY_KINDS: dict[str, ReplayKind] = {
    "roll_back": "recorded",
    "calibrate": "calibrated",
    "subtract": "subtracted",
}


@dataclass(frozen=True, slots=True)
class WantedAnswer:
    """What one client asks for."""

    handle: Handle
    wanted: str = "auto"
    basis: Basis = "none"


@dataclass(frozen=True, slots=True)
class AnswerChoice:
    """What one client could be answered beside the others, and what it is.

    Attributes:
        options: of this client, once those before it have left.
        chosen: the answer, with the rounds that are replayed for all; None: see `reason`.
    """

    options: tuple[Option, ...]
    chosen: Option | None
    reason: str = ""


def choose_answers(
    participation: Participation,
    wanted_answers: Sequence[WantedAnswer],
    rules: AnswerRules,
) -> tuple[AnswerChoice, ...]:
    """Return what each client is answered if all of them leave at once."""
    found: list[AnswerChoice] = []
    for wanted_answer in wanted_answers:
        choice = _choose_alone(participation, wanted_answer, rules)
        found.append(choice)
        if choice.chosen is not None:
            left = dict.fromkeys((*participation.left, wanted_answer.handle))
            participation = replace(participation, left=tuple(left))
    return _in_one_replay(found, wanted_answers, rules)


def replay_kind(chosen: Sequence[Option]) -> ReplayKind:
    """Return how rounds are played again for these answers at once.

    The others' old choices were made in the presence of all who leave: as soon as one
    of these is owed a run that never met it, they choose anew.
    """
    found: set[ReplayKind] = {REPLAY_KINDS.get(each.answer, "anew") for each in chosen}
    return "anew" if len(found) > 1 else found.pop()


def _choose_alone(
    participation: Participation, wanted_answer: WantedAnswer, rules: AnswerRules
) -> AnswerChoice:
    found = options(participation, wanted_answer.handle, rules)
    if wanted_answer.handle in participation.left:
        gone = wanted_answer.handle in participation.lingering
        found = tuple(_stronger(each, subtracted=gone) for each in found)
    try:
        return AnswerChoice(
            found, answer_for(found, wanted_answer.wanted, wanted_answer.basis)
        )
    except RunError as error:
        return AnswerChoice(found, None, str(error))


def _stronger(option: Option, *, subtracted: bool) -> Option:
    """Refuse to deny a client a second time, or to subtract one that a replay left out."""
    weak = {"deny": "denial"} | ({"subtract": "subtraction"} if subtracted else {})
    which = weak.get(option.answer)
    if which is None:
        return option
    return Option(
        option.answer,
        f"Who left a run can be given a stronger answer than the one it was given, and a "
        f"{which} is none. Ask with --answer retrain.",
    )


def _in_one_replay(
    found: Sequence[AnswerChoice],
    wanted_answers: Sequence[WantedAnswer],
    rules: AnswerRules,
) -> tuple[AnswerChoice, ...]:
    starts = [
        each.chosen.first_replayed_round
        for each in found
        if each.chosen is not None
        and each.chosen.first_replayed_round is not None
        and each.chosen.answer != "subtract"
    ]
    if len(starts) < 2:
        return tuple(found)
    start = min(starts)
    replayed = rules.next_round - start
    anew = any(each.chosen and each.chosen.answer == "retrain" for each in found)

    def shared(choice: AnswerChoice, wanted_answer: WantedAnswer) -> AnswerChoice:
        chosen = choice.chosen
        if chosen is None or chosen.first_replayed_round is None:
            return choice
        if chosen.answer == "subtract":
            return choice
        if anew and wanted_answer.wanted == "auto":
            chosen = _retraining_if_no_dearer(choice, start) or chosen
        chosen = replace(chosen, first_replayed_round=start, rounds_replayed=replayed)
        return replace(choice, chosen=chosen)

    return tuple(map(shared, found, wanted_answers))


def _retraining_if_no_dearer(choice: AnswerChoice, start: int) -> Option | None:
    """Return the retraining of a client whose every round is played again anew anyway."""
    option = next(each for each in choice.options if each.answer == "retrain")
    first = option.first_affected_round
    return option if first is not None and start <= first else None
