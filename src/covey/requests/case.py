"""A request as its facts tell it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any, Literal, cast

from covey.errors import LedgerError
from covey.requests.dates import due_date
from covey.requests.facts import (
    AnswerBegun,
    CaseClosed,
    CaseClosing,
    DeadlineExtended,
    Fact,
    ItemAdded,
    ItemSigned,
    LetterWritten,
    RequestReceived,
    RunAnswered,
    RunAsked,
    RunLost,
    RunsSearched,
)
from covey.types import Basis

__all__ = [
    "ANSWER_LETTER",
    "ITEM_KINDS",
    "Case",
    "CaseState",
    "Item",
    "cases_of",
]

ANSWER_LETTER = "answer.html"
"""The letter to the requester."""

ITEM_KINDS = ("source", "backup", "recipient", "downstream", "other")
"""Files that the data came from; backups and logs; who was given a model; models that were
built on one; anything else."""

CaseState = Literal["open", "answering", "answered", "closing", "closed"]


@dataclass(frozen=True, slots=True)
class Item:
    """Something that has to be done by hand. Texts are handles.

    Attributes:
        signed_by: who says that it was done; "": nobody yet.
        signed_on: the day on which it was.
        kept: why something of it is kept; "": nothing is.
    """

    number: int
    kind: str
    text: str
    signed_by: str = ""
    signed_on: str = ""
    note: str = ""
    kept: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Somebody's request to leave, over all runs. Names and texts are handles.

    Attributes:
        number: names the case.
        known: runs that knew the name when they were last searched.
        extended: when the requester was told that it takes longer; None: it does not.
        wanted: the answer that runs are asked for; "": nothing was begun.
        asked: a run's own name for the request, by run.
        answered: what each run answered.
        letters: SHA-256 of each letter, by its file's name.
        letters_are_old: something was added or signed off after the answer's was written.
    """

    number: str
    person: str
    received: date
    basis: Basis
    owner: str = ""
    known: tuple[str, ...] = ()
    extended: DeadlineExtended | None = None
    items: tuple[Item, ...] = ()
    wanted: str = ""
    asked: Mapping[str, str] = field(default_factory=dict[str, str])
    answered: Mapping[str, RunAnswered] = field(default_factory=dict[str, RunAnswered])
    letters: Mapping[str, str] = field(default_factory=dict[str, str])
    letters_are_old: bool = False
    closing: CaseClosing | None = None
    is_closed: bool = False

    @property
    def due(self) -> date:
        """The last day on which it can be answered."""
        return due_date(self.received, extended=self.extended is not None)

    @property
    def open_items(self) -> tuple[Item, ...]:
        """What nobody has signed off yet."""
        return tuple(each for each in self.items if not each.signed_by)

    @property
    def unanswered(self) -> tuple[str, ...]:
        """The runs that were asked and have not answered."""
        return tuple(each for each in self.asked if each not in self.answered)

    @property
    def state(self) -> CaseState:
        """How far it is."""
        if self.is_closed:
            return "closed"
        if self.closing is not None:
            return "closing"
        if not self.wanted:
            return "open"
        waits = self.unanswered or set(self.known) - self.answered.keys()
        return "answering" if waits else "answered"


def cases_of(facts: Iterable[Fact]) -> dict[str, Case]:
    """Fold facts into cases, by number, in the order in which they came.

    Raises:
        LedgerError: a fact is about a case that never began, or began twice.
    """
    cases: dict[str, Case] = {}
    for fact in facts:
        known = cases.get(fact.case)
        if isinstance(fact, RequestReceived):
            if known is not None:
                raise _disordered(fact)
            cases[fact.case] = _begun(fact)
        elif known is not None:
            cases[fact.case] = _STEPS.get(type(fact), _unchanged)(known, fact)
        elif fact.case:
            raise _disordered(fact)
    return cases


def _begun(fact: RequestReceived) -> Case:
    return Case(
        number=fact.case,
        person=fact.person,
        received=date.fromisoformat(fact.received),
        basis=cast("Basis", fact.basis),
        owner=fact.owner,
    )


def _unchanged(case: Case, _: Fact) -> Case:
    return case


def _searched(case: Case, fact: Any) -> Case:  # noqa: ANN401 - of the class in `_STEPS`
    return replace(case, known=cast("RunsSearched", fact).known)


def _extended(case: Case, fact: Any) -> Case:  # noqa: ANN401
    return replace(case, extended=fact)


def _with_item(case: Case, fact: Any) -> Case:  # noqa: ANN401
    item = Item(fact.item, fact.kind, fact.text)
    return replace(
        case, items=(*case.items, item), letters_are_old=ANSWER_LETTER in case.letters
    )


def _signed(case: Case, fact: Any) -> Case:  # noqa: ANN401
    def with_sign(item: Item) -> Item:
        if item.number != fact.item:
            return item
        signed = replace(item, signed_by=fact.by, signed_on=fact.day)
        return replace(signed, note=fact.note, kept=fact.kept)

    items = tuple(map(with_sign, case.items))
    return replace(case, items=items, letters_are_old=ANSWER_LETTER in case.letters)


def _answering(case: Case, fact: Any) -> Case:  # noqa: ANN401
    return replace(case, wanted=fact.wanted)


def _asked(case: Case, fact: Any) -> Case:  # noqa: ANN401
    return replace(case, asked={**case.asked, fact.run: fact.request})


def _answered(case: Case, fact: Any) -> Case:  # noqa: ANN401
    case = _asked(case, fact)
    return replace(case, answered={**case.answered, fact.run: fact})


def _lost(case: Case, fact: Any) -> Case:  # noqa: ANN401
    known = tuple(each for each in case.known if each != fact.run)
    asked = {run: request for run, request in case.asked.items() if run != fact.run}
    return replace(case, known=known, asked=asked)


def _lettered(case: Case, fact: Any) -> Case:  # noqa: ANN401
    old = case.letters_are_old and fact.letter != ANSWER_LETTER
    letters = {**case.letters, fact.letter: fact.sha256}
    return replace(case, letters=letters, letters_are_old=old)


def _closing(case: Case, fact: Any) -> Case:  # noqa: ANN401
    return replace(case, closing=fact)


def _closed(case: Case, _: Fact) -> Case:
    return replace(case, is_closed=True)


_STEPS: Mapping[type[Fact], Callable[[Case, Any], Case]] = {
    RunsSearched: _searched,
    DeadlineExtended: _extended,
    ItemAdded: _with_item,
    ItemSigned: _signed,
    AnswerBegun: _answering,
    RunAsked: _asked,
    RunAnswered: _answered,
    RunLost: _lost,
    LetterWritten: _lettered,
    CaseClosing: _closing,
    CaseClosed: _closed,
}


def _disordered(fact: Fact) -> LedgerError:
    return LedgerError(
        f"A case begins once, and before anything is done about it, but {fact.case!r} "
        f"has a {type(fact).__name__} out of order. Restore the register from a copy."
    )
