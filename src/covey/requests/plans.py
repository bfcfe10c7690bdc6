"""One plan over all runs: what each would answer, what that costs, what is true then."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from covey.errors import CoveyError, LedgerLocked
from covey.requests.case import Case
from covey.requests.holdings import ByHand, Holdings, by_hand, search_runs
from covey.requests.register import Register
from covey.runs import Run
from covey.runs.wishes import wanted_answer
from covey.runtime import ClientPlan
from covey.types import Basis
from covey.unlearning.afterwards import AFTERWARDS

__all__ = [
    "CasePlan",
    "Load",
    "Plan",
    "RunPlan",
    "grouped",
    "plan_answers",
    "still_open",
]

Load = Callable[[Path], Run]
"""How a run is loaded: a program passes the model and the clients that it began with."""

PLAYED = (
    "a process is playing it: the request is left with that process, and answered between "
    "two rounds"
)


@dataclass(frozen=True, slots=True)
class CasePlan:
    """What one run would answer to one requester.

    Attributes:
        answer: "": none would be true; `reason` says why.
        afterwards: what is then true of the run's models.
        seconds: predicted, for all that leave together; None: not known.
    """

    case: str
    answer: str
    reason: str
    afterwards: str
    rounds_replayed: int
    seconds: float | None
    bytes_deleted: int


@dataclass(frozen=True, slots=True)
class RunPlan:
    """What one run would answer to all who leave it now.

    Attributes:
        problem: why that cannot be said; "": it can.
    """

    run: str
    name: str
    cases: tuple[CasePlan, ...]
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """What would be done about some cases in all runs.

    Attributes:
        by_hand: what no run does, by the case's number.
        unreadable: runs of which nobody can say whether they know the names, and why.
        unknown: cases whose name no run knows.
    """

    runs: tuple[RunPlan, ...]
    by_hand: Mapping[str, tuple[ByHand, ...]]
    unreadable: Mapping[str, str]
    unknown: tuple[str, ...]

    def answer(self) -> dict[str, Any]:
        """Return it for a program, in JSON's values."""
        return asdict(self)


def still_open(register: Register, numbers: Sequence[str]) -> tuple[Case, ...]:
    """Return these cases, or all of them, that are not being closed, by date of receipt.

    Raises:
        ConfigError: there is no such case.
    """
    found = [register.case(each) for each in dict.fromkeys(numbers)]
    cases = found or list(register.cases().values())
    alive = [each for each in cases if each.closing is None and not each.is_closed]
    return tuple(sorted(alive, key=lambda case: (case.received, case.number)))


def plan_answers(
    register: Register,
    roots: Sequence[str | Path],
    numbers: Sequence[str] = (),
    wanted: str = "",
    load: Load = Run,
) -> Plan:
    """Return what would be answered; nothing is done.

    Args:
        register: where the cases are.
        roots: folders that runs lie below, and URLs of ledgers.
        numbers: of cases; none: all that are open.
        wanted: the answer that is asked for; "": what each case has been begun with.
        load: how a run is loaded.

    Raises:
        ConfigError: there is no such answer.
    """
    cases, texts = still_open(register, numbers), register.texts()
    wanted_answer(wanted or "auto", None)
    names = {each.number: texts[each.person] for each in cases}
    found = search_runs(roots, list(names.values()))
    runs = tuple(
        _run_plan(place, entry.name, _there(cases, names, known), wanted, load)
        for place, (entry, known) in found.known.items()
    )
    return Plan(
        runs=runs,
        by_hand={number: _by_hand(found, name) for number, name in names.items()},
        unreadable={each.place: each.reason for each in found.unreadable},
        unknown=tuple(
            each.number
            for each in cases
            if not found.runs_of(names[each.number]) and not each.answered
        ),
    )


def grouped(
    cases: Mapping[str, Case], wanted: str
) -> Iterator[tuple[str, Basis, dict[str, Case]]]:
    """Yield cases, by name, that can be answered at once: of one basis and one answer."""
    groups: dict[tuple[str, Basis], dict[str, Case]] = {}
    for name, case in cases.items():
        key = wanted or case.wanted or "auto", case.basis
        groups.setdefault(key, {})[name] = case
    for (answer, basis), group in groups.items():
        yield answer, basis, group


def _there(
    cases: Sequence[Case], names: Mapping[str, str], known: frozenset[str]
) -> dict[str, Case]:
    """Return the cases of names that a run knows; of one name the earliest case."""
    found: dict[str, Case] = {}
    for case in cases:
        if names[case.number] in known:
            found.setdefault(names[case.number], case)
    return found


def _run_plan(
    place: str, name: str, cases: Mapping[str, Case], wanted: str, load: Load
) -> RunPlan:
    planned: list[CasePlan] = []
    try:
        run = load(Path(place))
        for answer, basis, group in grouped(cases, wanted):
            plans = run.plan([*group], answer, basis)
            planned += map(_case_plan, group.values(), plans)
    except LedgerLocked:
        return RunPlan(place, name, tuple(planned), PLAYED)
    except CoveyError as error:
        return RunPlan(place, name, tuple(planned), str(error))
    return RunPlan(place, name, tuple(planned))


def _case_plan(case: Case, plan: ClientPlan) -> CasePlan:
    chosen = plan.chosen
    if chosen is None:
        return CasePlan(case.number, "", plan.reason, "", 0, None, 0)
    own = [cost for option, cost in plan.options if option.answer == chosen.answer]
    per_round = [
        cost.seconds / option.rounds_replayed
        for option, cost in plan.options
        if cost.seconds and option.rounds_replayed
    ]
    replayed = chosen.rounds_replayed
    seconds = replayed * per_round[0] if replayed and per_round else None
    return CasePlan(
        case=case.number,
        answer=chosen.answer,
        reason=plan.reason,
        afterwards=AFTERWARDS[chosen.answer],
        rounds_replayed=replayed,
        seconds=0.0 if not replayed else seconds,
        bytes_deleted=max((each.bytes_deleted for each in own), default=0),
    )


def _by_hand(found: Holdings, name: str) -> tuple[ByHand, ...]:
    items: dict[ByHand, None] = {}
    places = found.runs_of(name)
    for place in places:
        items |= dict.fromkeys(hand_list(place, name, places))
    return tuple(items)


def hand_list(place: str, name: str, others: Sequence[str]) -> tuple[ByHand, ...]:
    """Return what a person has to do about one run; that it is not known is one thing."""
    try:
        return by_hand(Path(place), name, others)
    except CoveyError as error:
        return (
            ByHand(
                "other",
                f"{place} could not be searched for what is to be done by hand: {error} "
                f"Look with `covey explain` before it is answered, or in its folder.",
            ),
        )
