"""Several requests that are answered at once: what is true of all of them together.

Each is judged as if those before it had left already, so that no set loses two members
and is counted for each of them alone. Whoever needs a replay shares one, which starts
where the earliest of them starts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from covey.errors import RunError
from covey.types import Basis, Handle
from covey.unlearning.basis import answer_for
from covey.unlearning.participation import Participation
from covey.unlearning.plan import Option, Rules, options

__all__ = ["Choice", "How", "Wish", "jointly", "replayed_as"]

How = Literal["recorded", "anew", "calibrated"]
"""The others keep the clusters that are recorded, choose anew, or only calibrate."""

REPLAYED: dict[str, How] = {"roll_back": "recorded", "calibrate": "calibrated"}


@dataclass(frozen=True, slots=True)
class Wish:
    """What one client asks for."""

    handle: Handle
    wanted: str = "auto"
    basis: Basis = "none"


@dataclass(frozen=True, slots=True)
class Choice:
    """What one client could be answered beside the others, and what it is.

    Attributes:
        options: of this client, once those before it have left.
        chosen: the answer, with the rounds that are replayed for all; None: see `reason`.
    """

    options: tuple[Option, ...]
    chosen: Option | None
    reason: str = ""


def jointly(
    participation: Participation, wishes: Sequence[Wish], rules: Rules
) -> tuple[Choice, ...]:
    """Return what each client is answered if all of them leave at once."""
    found: list[Choice] = []
    for wish in wishes:
        choice = _alone(participation, wish, rules)
        found.append(choice)
        if choice.chosen is not None:
            left = dict.fromkeys((*participation.left, wish.handle))
            participation = replace(participation, left=tuple(left))
    return _in_one_replay(found, wishes, rules)


def replayed_as(chosen: Sequence[Option]) -> How:
    """Return how rounds are played again for these answers at once.

    The others' old choices were made in the presence of all who leave: as soon as one
    of these is owed a run that never met it, they choose anew.
    """
    found: set[How] = {REPLAYED.get(each.answer, "anew") for each in chosen}
    return "anew" if len(found) > 1 else found.pop()


def _alone(participation: Participation, wish: Wish, rules: Rules) -> Choice:
    found = options(participation, wish.handle, rules)
    if wish.handle in participation.left:
        found = tuple(map(_stronger, found))
    try:
        return Choice(found, answer_for(found, wish.wanted, wish.basis))
    except RunError as error:
        return Choice(found, None, str(error))


def _stronger(option: Option) -> Option:
    """Deny nobody twice."""
    if option.answer != "deny":
        return option
    return Option(
        "deny",
        "Who left a run can be given a stronger answer than the one it was given, and a "
        "denial is none. Ask with --answer retrain.",
    )


def _in_one_replay(
    found: Sequence[Choice], wishes: Sequence[Wish], rules: Rules
) -> tuple[Choice, ...]:
    starts = [
        each.chosen.first_replayed_round
        for each in found
        if each.chosen is not None and each.chosen.first_replayed_round is not None
    ]
    if len(starts) < 2:
        return tuple(found)
    start = min(starts)
    again = rules.next_round - start
    anew = any(each.chosen and each.chosen.answer == "retrain" for each in found)

    def shared(choice: Choice, wish: Wish) -> Choice:
        chosen = choice.chosen
        if chosen is None or chosen.first_replayed_round is None:
            return choice
        if anew and wish.wanted == "auto":
            chosen = _no_dearer(choice, start) or chosen
        chosen = replace(chosen, first_replayed_round=start, rounds_replayed=again)
        return replace(choice, chosen=chosen)

    return tuple(map(shared, found, wishes))


def _no_dearer(choice: Choice, start: int) -> Option | None:
    """Return the retraining of a client whose every round is played again anew anyway."""
    option = next(each for each in choice.options if each.answer == "retrain")
    first = option.first_affected_round
    return option if first is not None and start <= first else None
