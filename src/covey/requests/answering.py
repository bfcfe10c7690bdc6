"""Answering cases in every run that knows them; after a kill it is done again from there.

    begin     what is to be done by hand is listed, while the names still find it
    ask       each run puts the requests in its ledger, and their receipts are noted here
    answer    each run signs its proofs, and what they say is noted here

Whatever kills it between two steps: a run that was asked finishes its own requests, and its
answer is found by the receipt's mark, which only the requester's name and salt give.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from covey.errors import CoveyError, LedgerLocked
from covey.requests.asking import ask_run, finish_run, leave_word, owes_answers
from covey.requests.beginning import begin_case
from covey.requests.case import Case
from covey.requests.holdings import Holdings, search_runs
from covey.requests.noting import note_answers, note_lost
from covey.requests.plans import PLAYED, Load, still_open
from covey.requests.register import Register, handle_of
from covey.runs import Run
from covey.runs.wishes import wanted_answer
from covey.runtime import Observer, RunFolder

__all__ = ["RunOutcome", "answer_cases"]


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """What came of one case in one run.

    Attributes:
        answer: "": none yet; `reason` says why.
        proof: its path; "": there is none yet.
    """

    case: str
    run: str
    answer: str = ""
    proof: str = ""
    model_changed: bool = False
    reason: str = ""

    def told(self) -> dict[str, Any]:
        """Return it for a program, in JSON's values."""
        return asdict(self)


def answer_cases(  # noqa: PLR0913, PLR0917 - the last four have defaults
    register: Register,
    roots: Sequence[str | Path],
    numbers: Sequence[str] = (),
    wanted: str = "",
    load: Load = Run,
    observe: Observer = lambda _: None,
    on_run: Callable[[str], object] = lambda _: None,
    *,
    pages: bool = True,
) -> tuple[RunOutcome, ...]:
    """Answer these cases in every run that knows their names; who leaves together shares.

    A run that cannot answer now keeps nobody else waiting: its outcome says why. Called
    again, it goes on with what is left.

    Args:
        register: open to be written.
        roots: folders that runs lie below, and URLs of ledgers.
        numbers: of cases; none: all that are open.
        wanted: the answer that is asked for from now on; "": "auto", or what was begun.
        load: how a run is loaded.
        observe: called after every round that is played again.
        on_run: called with the place of each run before it is answered.
        pages: write the report of each run that answered anew, as answers delete it.

    Raises:
        ConfigError: there is no such answer; nothing was done.
    """
    names = _names(register, still_open(register, numbers))
    found = search_runs(roots, list(names.values()))
    for number in names:
        wanted_answer(wanted or "auto", register.case(number).basis)
    for number, name in names.items():
        begin_case(register, register.case(number), name, found, wanted)
    outcomes: list[RunOutcome] = []
    for place in _places(register, names, found):
        on_run(place)
        found_here = _in_run(register, names, place, load, observe)
        if pages and any(each.answer for each in found_here):
            load(Path(place)).report()
        outcomes += found_here
    return tuple(outcomes)


def _names(register: Register, cases: Sequence[Case]) -> dict[str, str]:
    """Return the cases' names by number; who asks twice is answered once, by the first."""
    names: dict[str, str] = {}
    for case in cases:
        name = register.text(case.person)
        if name not in names.values():
            names[case.number] = name
    return names


def _places(
    register: Register, names: Mapping[str, str], found: Holdings
) -> Iterator[str]:
    """Yield the runs that know a name, and those that owe an answer, each once."""
    cases, texts = register.cases(), register.texts()
    known = [place for name in names.values() for place in found.runs_of(name)]
    begun = [
        texts[handle]
        for number in names
        for handle in dict.fromkeys((*cases[number].known, *cases[number].asked))
        if handle not in cases[number].answered
    ]
    yield from dict.fromkeys((*known, *begun))


def _in_run(
    register: Register,
    names: Mapping[str, str],
    place: str,
    load: Load,
    observe: Observer,
) -> list[RunOutcome]:
    handle = handle_of("r", place, register.texts())
    waiting = [n for n in names if handle not in register.case(n).answered]
    reason, refused = "", dict[str, str]()
    if not RunFolder(Path(place)).config_path.is_file():
        note_lost(register, names, handle, ())
        return []
    try:
        run = load(Path(place))
        finish_run(run, observe)
        note_answers(register, names, run, handle)
        refused = ask_run(register, names, run, handle, observe)
        note_answers(register, names, run, handle)
        if not owes_answers(run):
            note_lost(register, names, handle, run.names)
    except LedgerLocked:
        reason = PLAYED
        leave_word(register, names, Path(place), handle)
    except CoveyError as error:
        reason = str(error)
    return [
        _outcome(register.case(n), handle, place, refused.get(names[n]) or reason)
        for n in waiting
        if handle in (*register.case(n).known, *register.case(n).asked)
    ]


def _outcome(case: Case, handle: str, place: str, reason: str) -> RunOutcome:
    given = case.answered.get(handle)
    if given is None:
        return RunOutcome(case.number, place, reason=reason)
    proof = RunFolder(Path(place)).proofs / f"{given.request}.json"
    return RunOutcome(case.number, place, given.answer, str(proof), given.model_changed)
