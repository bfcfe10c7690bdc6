"""Answers to several clients that leave together.

Each is judged as if those before it had left already, so that no set loses two members
and is counted for each of them alone. Clients that need a replay share one, which starts
where the earliest of them starts; those who are subtracted have one of their own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from covey.base.errors import RunError
from covey.base.names import Basis, ClientName
from covey.leaving.plan import AnswerRules, Option, answer_for, options
from covey.ledger.participation import Participation
from covey.ledger.requests import LeaveRequest


@dataclass(frozen=True, slots=True)
class ClientPlan:
    """What one client could be answered beside the others, and what it is.

    Attributes:
        options: of this client, once those who ask with it and before it have left.
        chosen: the answer, with the rounds that are replayed for all; None: see `reason`.
        reason: why no answer would be true; "": one is.
        basis: what the request rests on.
    """

    client: ClientName
    options: tuple[Option, ...]
    chosen: Option | None
    reason: str = ""
    basis: Basis = "none"


def choose_answers(
    participation: Participation, requests: Sequence[LeaveRequest], rules: AnswerRules
) -> tuple[ClientPlan, ...]:
    """Return what each client is answered if all of them leave at once."""
    plans: list[ClientPlan] = []
    for request in requests:
        choice = _choose_alone(participation, request, rules)
        plans.append(choice)
        if choice.chosen is not None:
            left = dict.fromkeys((*participation.left, request.handle))
            participation = replace(participation, left=tuple(left))
    return _in_one_replay(plans, requests, rules)


def _choose_alone(
    participation: Participation, request: LeaveRequest, rules: AnswerRules
) -> ClientPlan:
    handle = request.handle
    possible = options(participation, handle, rules)
    if handle in participation.stopped:
        possible = tuple(
            Option("stop", "No later round uses this client's data: that was answered before.")
            if option.answer == "stop"
            else option
            for option in possible
        )
    elif handle in participation.left:
        # neither deny or stop it a second time, nor subtract one that a replay left out
        weak = {"deny": "denial", "stop": "stop"}
        if handle in participation.lingering:
            weak["subtract"] = "subtraction"
        possible = tuple(
            Option(
                option.answer,
                f"Who left a run must get a stronger answer than it got, found a "
                f"{weak[option.answer]}: ask with --answer retrain.",
            )
            if option.answer in weak
            else option
            for option in possible
        )
    chosen, reason, basis = None, "", request.basis
    try:
        chosen = answer_for(possible, request.wanted, basis)
    except RunError as error:
        reason = str(error)
    return ClientPlan(request.client, possible, chosen, reason, basis)


def _in_one_replay(
    choices: Sequence[ClientPlan], requests: Sequence[LeaveRequest], rules: AnswerRules
) -> tuple[ClientPlan, ...]:
    starts = [first for choice in choices if (first := _trained_from(choice.chosen)) is not None]
    if len(starts) < 2:
        return tuple(choices)
    start, shared = min(starts), list(choices)
    anew = any(choice.chosen and choice.chosen.answer == "retrain" for choice in choices)
    for i, (choice, wanted) in enumerate(zip(choices, requests, strict=True)):
        chosen = choice.chosen
        if chosen is None or _trained_from(chosen) is None:
            continue
        retrain = next(option for option in choice.options if option.answer == "retrain")
        first = retrain.first_affected_round
        if anew and wanted.wanted == "auto" and first is not None and start <= first:
            chosen = retrain  # every round of this client is played again anew anyway
        replayed = rules.next_round - start
        chosen = replace(chosen, first_replayed_round=start, rounds_replayed=replayed)
        shared[i] = replace(choice, chosen=chosen)
    return tuple(shared)


def _trained_from(chosen: Option | None) -> int | None:
    """Return the round from which rounds are trained again; None: none is."""
    return None if chosen is None or chosen.answer == "subtract" else chosen.first_replayed_round
