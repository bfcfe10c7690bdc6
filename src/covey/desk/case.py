"""A request to leave as its facts tell it, and the register of all of them.

When a request has to be answered: GDPR Art. 12(3).

Without undue delay, and within one month of receipt; where that is necessary, two further
months, of which the requester is told with the reasons within the first one.

A month ends on the day of the same number, or where there is none, on the month's last day
(Regulation 1182/71, Art. 3(2)(c)). It is not made longer by holidays or weekends here.

What is recorded of a request, in order: facts without names.

Who asks, who is responsible, where runs lie and what is written of an item stand in the
register's table of texts, which can be erased. Facts know them by handles.

The register of requests: facts in a hash chain, and the texts that they are about.

One ledger file: its events are the facts, and its table of clients, the only one that can
be erased from, holds every name and text under its handle.
"""

import secrets
from calendar import monthrange
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any, Literal, cast

from pydantic import TypeAdapter, ValidationError

from covey.base.errors import ConfigError, LedgerError
from covey.base.files import make_folder
from covey.base.names import Basis
from covey.ledger.chain import Record
from covey.ledger.store import Ledger
from covey.runtime.folder import now

MONTHS = 1
EXTENDED_MONTHS = 3
"""Since receipt: one month, and two further ones."""


def months_after(day: date, months: int) -> date:
    """Return the day of the same number so many months later, or that month's last one.

    >>> months_after(date(2027, 1, 31), 1)
    datetime.date(2027, 2, 28)
    """
    years, month = divmod(day.month - 1 + months, 12)
    year, month = day.year + years, month + 1
    return date(year, month, min(day.day, monthrange(year, month)[1]))


def due_date(received: date, *, extended: bool = False) -> date:
    """Return the last day on which a request that came on `received` can be answered."""
    return months_after(received, EXTENDED_MONTHS if extended else MONTHS)


def day_of(text: str, what: str) -> date:
    """Return a day that was written as 2027-01-31.

    Raises:
        ConfigError: it is none.
    """
    try:
        return date.fromisoformat(text.strip())
    except ValueError as error:
        raise ConfigError(
            f"{what} takes a day as YEAR-MONTH-DAY, for example 2027-01-31, found "
            f"{text!r}. Write it so."
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """Something that happened to a case.

    Attributes:
        case: its number.
    """

    case: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestReceived(Fact):
    """Somebody asks to leave.

    Attributes:
        person: the requester's handle.
        received: on which day, ISO 8601.
        basis: what the request rests on, in the words of `covey.base.names.BASES`.
        owner: the handle of who is responsible; "": nobody is named.
    """

    person: str
    received: str
    basis: str
    owner: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsSearched(Fact):
    """Runs were searched for the name.

    Attributes:
        known: handles of the runs that know it.
    """

    known: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlineExtended(Fact):
    """The requester was told that the answer takes longer.

    Attributes:
        told: on which day.
        reason: the handle of the text.
    """

    told: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemAdded(Fact):
    """Something has to be done by hand.

    Attributes:
        item: its number in the case.
        kind: one of `ITEM_KINDS`.
        text: the handle of the text.
    """

    item: int
    kind: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemSigned(Fact):
    """Somebody says that it was done.

    Attributes:
        by: the handle of who does.
        day: when it was done.
        note: the handle of the text; "": none.
        kept: the handle of why something of it is kept; "": nothing is.
    """

    item: int
    by: str
    day: str
    note: str
    kept: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerBegun(Fact):
    """From here on the runs are answered.

    Attributes:
        wanted: the answer that is asked of each, or "auto".
    """

    wanted: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAsked(Fact):
    """A request stands in a run's ledger.

    Attributes:
        run: the run's handle.
        request: as the run's ledger calls it.
    """

    run: str
    request: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAnswered(Fact):
    """A run's answer is signed.

    Attributes:
        answer: what was answered.
        answered: when, ISO 8601.
        model_changed: whether the run's models were.
        proof_sha256: of the proof's file.
    """

    run: str
    request: str
    answer: str
    answered: str
    model_changed: bool
    proof_sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLost(Fact):
    """A run does not know the name any more, and no proof of its is this case's.

    An item says that a person has to find out who answered there.
    """

    run: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterWritten(Fact):
    """A letter was written, to be handed out.

    Attributes:
        letter: its file's name, which names nobody.
        sha256: of its bytes.
    """

    letter: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseClosing(Fact):
    """The letters were handed out; from here on salts, letters and names are deleted.

    Attributes:
        by: the handle of who says so.
        reason: the handle of a text, where no run was answered; "": answers were given.
    """

    by: str
    day: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseClosed(Fact):
    """The name is erased."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TracesOverwritten(Fact):
    """What was left of erased texts in the register's file is overwritten."""


_readers = {each.__name__: TypeAdapter[Fact](each) for each in Fact.__subclasses__()}


def record_of(fact: Fact) -> Record:
    """Return a fact as the register's chain holds it."""
    return Record(None, type(fact).__name__, asdict(fact))


def fact_of(record: Record) -> Fact:
    """Undo `record_of`.

    Raises:
        LedgerError: it is no fact that this version of covey knows.
    """
    try:
        return _readers[record.kind].validate_python(record.body)
    except (KeyError, ValidationError) as error:
        raise LedgerError(
            f"A register of requests holds facts that covey wrote, found {record.kind!r}, "
            f"which cannot be read: {type(error).__name__}. Use the version of covey that "
            f"wrote it, or restore it from a copy."
        ) from error


ANSWER_LETTER = "answer.html"
"""The letter to the requester."""

ITEM_KINDS = ("source", "backup", "recipient", "downstream", "other")
"""Files that the data came from; backups and logs; who was given a model; models that were
built on one; anything else."""

CaseState = Literal["open", "answering", "answered", "closing", "closed"]


@dataclass(frozen=True, slots=True)
class Item:
    """Something that has to be done by hand. Texts are handles, but in a `CaseView`.

    Attributes:
        item: its number.
        signed_by: who says that it was done; "": nobody yet.
        signed_on: the day on which it was.
        kept: why something of it is kept; "": nothing is.
    """

    item: int
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
        if known is None and isinstance(fact, RequestReceived):
            cases[fact.case] = Case(
                number=fact.case,
                person=fact.person,
                received=date.fromisoformat(fact.received),
                basis=cast("Basis", fact.basis),
                owner=fact.owner,
            )
        elif known is not None and not isinstance(fact, RequestReceived):
            cases[fact.case] = _after(known, fact)
        elif fact.case or known is not None:
            raise LedgerError(
                f"A case begins once, and before anything is done about it, but {fact.case!r} "
                f"has a {type(fact).__name__} out of order. Restore the register from a copy."
            )
    return cases


def _after(case: Case, fact: Fact) -> Case:
    """Return a case as it is after one more fact."""
    has_answer = ANSWER_LETTER in case.letters
    new: dict[str, Any] = {}
    match fact:
        case RunsSearched():
            new = {"known": fact.known}
        case DeadlineExtended():
            new = {"extended": fact}
        case ItemAdded():
            items = (*case.items, Item(fact.item, fact.kind, fact.text))
            new = {"items": items, "letters_are_old": has_answer}
        case ItemSigned():
            said = {"signed_by": fact.by, "signed_on": fact.day, "note": fact.note}
            items = tuple(
                replace(each, **said, kept=fact.kept) if each.item == fact.item else each
                for each in case.items
            )
            new = {"items": items, "letters_are_old": has_answer}
        case AnswerBegun():
            new = {"wanted": fact.wanted}
        case RunAsked():
            new = {"asked": {**case.asked, fact.run: fact.request}}
        case RunAnswered():
            asked = {**case.asked, fact.run: fact.request}
            new = {"asked": asked, "answered": {**case.answered, fact.run: fact}}
        case RunLost():
            new = {"known": tuple(each for each in case.known if each != fact.run)}
            new["asked"] = {run: asked for run, asked in case.asked.items() if run != fact.run}
        case LetterWritten():
            new = {"letters": {**case.letters, fact.letter: fact.sha256}}
            new["letters_are_old"] = case.letters_are_old and fact.letter != ANSWER_LETTER
        case CaseClosing():
            new = {"closing": fact}
        case CaseClosed():
            new = {"is_closed": True}
    return replace(case, **new)


FILE = "register.sqlite"
ERASED = "[erased]"
"""What is shown of a text that is not there any more."""


@dataclass(frozen=True, slots=True)
class RunOfCase:
    """A run that knows the name.

    Attributes:
        request: its identifier there; empty: not asked yet.
        answer: empty: none yet.
    """

    run: str
    request: str
    answer: str


@dataclass(frozen=True, slots=True)
class CaseView:
    """One person's request, over all runs; texts as far as they are not erased.

    Attributes:
        case: its number.
        name: as runs know it, until the case is closed.
        received: the day, ISO 8601.
        due: the day, ISO 8601.
        days_left: below 0: overdue.
        extended: why; empty: it is not.
        wanted: the answer that was asked for; empty: the one that fits.
        letters: SHA-256 by file.
    """

    case: str
    name: str
    state: CaseState
    received: str
    due: str
    days_left: int
    extended: str
    basis: Basis
    owner: str
    wanted: str
    runs: Sequence[RunOfCase]
    by_hand: Sequence[Item]
    letters: Mapping[str, str]
    closed_by: str

    @classmethod
    def of(cls, case: Case, texts: Mapping[str, str]) -> "CaseView":
        """Return a case as it is today."""

        def text(handle: str) -> str:
            return texts.get(handle, ERASED) if handle else ""

        answers = {run: fact.answer for run, fact in case.answered.items()}
        words = ("text", "signed_by", "note", "kept")
        return cls(
            case=case.number,
            name=text(case.person),
            state=case.state,
            received=case.received.isoformat(),
            due=case.due.isoformat(),
            days_left=(case.due - date.today()).days,
            extended=text(case.extended.reason) if case.extended else "",
            basis=case.basis,
            owner=text(case.owner),
            wanted=case.wanted,
            runs=[
                RunOfCase(text(run), case.asked.get(run, ""), answers.get(run, ""))
                for run in dict.fromkeys((*case.known, *case.asked))
            ],
            by_hand=[
                replace(each, **{name: text(getattr(each, name)) for name in words})
                for each in case.items
            ],
            letters=case.letters,
            closed_by=text(case.closing.by) if case.closing else "",
        )

    @property
    def open_items(self) -> Sequence[Item]:
        """What nobody has signed off yet."""
        return [each for each in self.by_hand if not each.signed_by]


def handle_of(kind: str, text: str, known: Mapping[str, str]) -> str:
    """Return the handle of a text that may be known: of a person, an officer, a run."""
    for handle, each in known.items():
        if handle.startswith(f"{kind}-") and each == text:
            return handle
    return f"{kind}-{secrets.token_hex(8)}"


def text_handle() -> str:
    """Return the handle of a text that is kept once for each time it was written."""
    return f"t-{secrets.token_hex(8)}"


@dataclass(frozen=True, slots=True, eq=False)
class Register:
    """The cases of one folder; open, it can be written.

    Attributes:
        folder: where the register lies, with the letters that wait to be handed out.
    """

    folder: Path
    _ledger: Ledger

    @property
    def letters(self) -> Path:
        """Where letters wait until their case is closed."""
        return self.folder / "letters"

    def facts(self) -> list[Fact]:
        """Return every fact, in order, once the whole chain is verified."""
        return [fact_of(each) for each in self._ledger.replay()]

    def views(self) -> list[CaseView]:
        """Return every case as it is shown, in the order in which they came."""
        texts = self.texts()
        return [CaseView.of(each, texts) for each in self.cases().values()]

    def cases(self) -> dict[str, Case]:
        """Return every case by its number, in the order in which they came."""
        return cases_of(self.facts())

    def case(self, number: str) -> Case:
        """Return one case.

        Raises:
            ConfigError: there is none.
        """
        cases = self.cases()
        if number not in cases:
            there = ", ".join(cases) or "none"
            raise ConfigError(
                f"A case is named by its number, found {number!r}, and there are: "
                f"{there}. `covey requests list` shows them."
            )
        return cases[number]

    def texts(self) -> dict[str, str]:
        """Return every name and text by its handle."""
        stored = self._ledger.names().items()
        return {handle: text.partition(" ")[2] for handle, text in stored}

    def text(self, handle: str) -> str:
        """Return one name or text, or that it was erased; "" of no handle."""
        return self.texts().get(handle, ERASED) if handle else ""

    def record(self, facts: Iterable[Fact], texts: Mapping[str, str] | None = None) -> None:
        """Add facts, and the texts that they are the first to be about, at once."""
        known = self._ledger.names()
        new = {h: _stored(h, text) for h, text in (texts or {}).items() if h not in known}
        self._ledger.append_between([record_of(each) for each in facts], new)

    def replace_texts(self, changed: Mapping[str, str | None], facts: Iterable[Fact]) -> None:
        """Add facts, and change or erase texts, at once; `overwrite_traces` comes next."""
        stored = {h: text and _stored(h, text) for h, text in changed.items()}
        self._ledger.replace_names(stored, [record_of(each) for each in facts])

    def overwrite_traces(self) -> None:
        """Overwrite what is left of erased texts, unless that was done."""
        facts = self.facts()
        closed = [i for i, each in enumerate(facts) if isinstance(each, CaseClosed)]
        done = [i for i, each in enumerate(facts) if isinstance(each, TracesOverwritten)]
        if not closed or (done and done[-1] > closed[-1]):
            return
        self._ledger.scrub()
        self.record([TracesOverwritten(case=facts[closed[-1]].case)])


@contextmanager
def register_at(folder: Path) -> Generator[Register]:
    """Open a register to write it; it is made if it is not there.

    Raises:
        LedgerError: it cannot be written, or another process is writing it.
    """
    make_folder(folder)
    path = folder / FILE
    begin = Ledger.open if Ledger.exists(path) else Ledger.create
    with begin(path, now) as ledger:
        register = Register(folder, ledger)
        register.overwrite_traces()  # which a kill may have left
        yield register


@contextmanager
def read_register(folder: Path) -> Generator[Register]:
    """Open a register to read it.

    Raises:
        ConfigError: there is none.
        LedgerError: it cannot be read.
    """
    path = folder / FILE
    if not path.is_file():
        raise ConfigError(
            f"A register of requests was expected in {folder}, but there is none. "
            f"`covey requests add` begins one; --register says where it is."
        )
    with Ledger.read(path) as ledger:
        yield Register(folder, ledger)


def _stored(handle: str, text: str) -> str:
    """Return a text as the table holds it, in which none may stand twice."""
    return f"{handle} {text}"
