"""The register of requests: what happened to each, in a hash chain, and the texts beside it.

Facts name no one. Names, references, reasons and what runs held on a person stand in the one
table that can be erased from, under handles.

When a request has to be answered (GDPR Art. 12(3)): within one month of receipt, which two
further months extend if the requester hears the reason within the first one. A month ends on
the day of the same number, or on its last day (Regulation 1182/71, Art. 3(2)(c)). Holidays and
weekends make it no longer.
"""

import hashlib
import json
import secrets
import time
from calendar import monthrange
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import TypeAdapter, ValidationError

from covey.base.errors import ConfigError, LedgerError, LedgerLocked
from covey.base.files import make_folder
from covey.ledger.chain import Record
from covey.ledger.store import Ledger
from covey.runtime.copies import Mention
from covey.runtime.folder import RunFolder, now

RequestBasis = Literal["erasure", "withdrawal", "restriction", "objection", "access"]
REQUEST_BASES: tuple[RequestBasis, ...] = get_args(RequestBasis)
Language = Literal["en", "de"]
LANGUAGES: tuple[Language, ...] = get_args(Language)
Ending = Literal["before", "elsewhere", "gone", "unreadable"]
"""Why a run gives no answer here: an earlier request was answered in it, somebody answered in
it past the register, it is deleted, or it cannot be read."""
RequestState = Literal["open", "answering", "answered", "closing", "closed"]

ENDINGS: Mapping[str, str] = {
    "": "not answered",
    "before": "answered before, by an earlier request",
    "elsewhere": "does not know the name any more: find out who answered there",
    "gone": "deleted",
    "unreadable": "cannot be read: find out whether it has the name",
}
FILE, PACKS = "register.sqlite", "packs"
ERASED, REQUESTER = "[erased]", "[requester]"
"""What is shown of a text that is not there any more, and of a name that is not to be shown."""


LOCKED_SECONDS = 10.0
"""How long a command waits until another one has written the register."""


def register_of(root: Path) -> Path:
    """Return where the runs below a folder have their register; a run has it beside itself."""
    is_run = RunFolder(root).config_path.is_file()
    return (root.resolve().parent if is_run else root) / "requests"


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
    return months_after(received, 3 if extended else 1)


def day_of(text: str, what: str) -> date:
    """Return a day that was written as 2027-01-31.

    Raises:
        ConfigError: it is none.
    """
    try:
        return date.fromisoformat(text.strip())
    except ValueError as error:
        raise ConfigError(
            f"{what} takes a day as YEAR-MONTH-DAY, for example 2027-01-31, found {text!r}. "
            f"Write it so."
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What a request says. Names and texts are handles, but in a `RequestView`.

    Attributes:
        received: on which day, ISO 8601.
        reference: the office's own; "": none.
        extended: when the requester heard that the answer takes longer; "": it does not.
        reason: why.
    """

    names: tuple[str, ...]
    received: str
    basis: RequestBasis
    reference: str = ""
    language: Language = "en"
    extended: str = ""
    reason: str = ""

    @property
    def due(self) -> date:
        """The last day on which it can be answered."""
        return due_date(date.fromisoformat(self.received), extended=bool(self.extended))

    def readable(self, texts: Mapping[str, str]) -> "Entry":
        """Return it with texts in place of their handles."""
        names = tuple(texts.get(each, ERASED) for each in self.names)
        more = {name: getattr(self, name) for name in ("reference", "reason")}
        shown = {name: texts.get(each, ERASED) if each else "" for name, each in more.items()}
        return replace(self, names=names, **shown)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """Something that happened to a request, which has this number."""

    request: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered(Fact):
    """It came."""

    entry: Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Corrected(Fact):
    """Its entry was wrong, and says this from then on."""

    entry: Entry
    day: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerBegun(Fact):
    """From here on runs are answered; wanted: the answer, or "auto"."""

    wanted: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOfRequest(Fact):
    """What a run did about one person, step by step: a later fact adds to what is known.

    Attributes:
        person: a handle; the name, where it is shown.
        run: a handle; the place, where it is shown.
        held: the handle of what the run holds on the person, once that was looked up.
        run_request: its own identifier of the request.
        answer: what was answered; "": nothing yet, or `ended` says why there is none.
        answered: when, ISO 8601.
        proof_sha256: of the proof's file.
        left: the handle of what the answer left to be done by hand.
        proof, reason: its path, and why there is no answer yet, where it is shown.
    """

    person: str
    run: str
    held: str = ""
    run_request: str = ""
    answer: str = ""
    answered: str = ""
    model_changed: bool = False
    proof_sha256: str = ""
    left: str = ""
    ended: Ending | Literal[""] = ""
    proof: str = ""
    reason: str = ""

    @property
    def outcome(self) -> str:
        """What came of it, in words."""
        return self.answer or ENDINGS[self.ended]

    def readable(self, texts: Mapping[str, str]) -> "RunOfRequest":
        """Return it with texts in place of their handles."""
        name, place = texts.get(self.person, ERASED), texts.get(self.run, ERASED)
        proof = str(proof_path(Path(place), self.run_request)) if self.answer else ""
        return replace(self, person=name, run=place, held="", left="", proof=proof)


@dataclass(frozen=True, slots=True, kw_only=True)
class PackWritten(Fact):
    """A person's answer was written, to be handed over; sha256: of its zip file."""

    person: str
    pack: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestClosing(Fact):
    """From here on salts, packs and names are deleted; reason: a handle, or ""."""

    day: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestClosed(Fact):
    """Its names are erased."""


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
        LedgerError: it is no fact that this version of covey writes.
    """
    try:
        return _readers[record.kind].validate_python(record.body)
    except (KeyError, ValidationError) as error:
        raise LedgerError(
            f"A register of requests holds facts that covey wrote, found {record.kind!r}, "
            f"which cannot be read: {type(error).__name__}. Use the version of covey that "
            f"wrote it, or restore it from a copy."
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request, over all runs, as its facts make it; names and texts are handles.

    Attributes:
        before: earlier entries, each with the day on which it was corrected.
        wanted: the answer that runs give; "": nothing was begun.
        noted: what each run did, by person and run.
        packs: by person, until something is answered after it was written.
    """

    number: str
    entry: Entry
    before: tuple[tuple[Entry, str], ...] = ()
    wanted: str = ""
    noted: Mapping[tuple[str, str], RunOfRequest] = field(
        default_factory=dict[tuple[str, str], RunOfRequest]
    )
    packs: Mapping[str, PackWritten] = field(default_factory=dict[str, PackWritten])
    closing: RequestClosing | None = None
    is_closed: bool = False

    @property
    def runs(self) -> dict[tuple[str, str], RunOfRequest]:
        """What each run did about the names of its entry, by person and run."""
        return {key: run for key, run in self.noted.items() if key[0] in self.entry.names}

    @property
    def waiting(self) -> tuple[tuple[str, str], ...]:
        """The runs that have not answered, by person."""
        access = self.entry.basis == "access"
        done = (each.ended or (each.held if access else each.answer) for each in self.runs.values())
        return tuple(key for key, is_done in zip(self.runs, done, strict=True) if not is_done)

    @property
    def state(self) -> RequestState:
        """How far it is."""
        if self.closing is not None:
            return "closed" if self.is_closed else "closing"
        return "open" if not self.wanted else "answering" if self.waiting else "answered"

    def after(self, fact: Fact) -> "Request":
        """Return the request as one more fact makes it."""
        new: dict[str, Any] = {}
        match fact:
            case Corrected(entry=entry, day=day):
                new = {"entry": entry, "before": (*self.before, (self.entry, day))}
            case AnswerBegun(wanted=wanted):
                new = {"wanted": wanted}
            case RunOfRequest():
                key = fact.person, fact.run
                known = {name: value for name, value in asdict(fact).items() if value}
                run = replace(self.noted.get(key, fact), **{**known, "ended": fact.ended})
                new = {"noted": {**self.noted, key: run}}
                if fact.answer or fact.ended:
                    stay = {one: pack for one, pack in self.packs.items() if one != fact.person}
                    new["packs"] = stay
            case PackWritten(person=person):
                new = {"packs": {**self.packs, person: fact}}
            case RequestClosing():
                new = {"closing": fact}
            case RequestClosed():
                new = {"is_closed": True}
            case _:
                pass
        return replace(self, **new)


def requests_of(facts: Iterable[Fact]) -> dict[str, Request]:
    """Fold facts into requests, by number, in the order in which they came.

    Raises:
        LedgerError: a fact is about a request that never came, or came twice.
    """
    requests: dict[str, Request] = {}
    for fact in facts:
        known = requests.get(fact.request)
        if isinstance(fact, Registered) == (known is not None):
            raise LedgerError(
                f"A request comes once, and before anything is done about it, but "
                f"{fact.request!r} has a {type(fact).__name__} out of order. Restore the "
                f"register from a copy."
            )
        if isinstance(fact, Registered):
            requests[fact.request] = Request(number=fact.request, entry=fact.entry)
        elif known is not None:
            requests[fact.request] = known.after(fact)
    return requests


@dataclass(frozen=True, slots=True)
class ToDo:
    """Something that no answer does.

    Attributes:
        where: a place, a recipient, a run, or, in a sentence, what covey knows no place of.
        what: the kind of the place or of the copy, or the `Ending` of the run.
        how: what is there, and what to do.
    """

    kind: Literal["place", "recipient", "run", "not listed"]
    where: str
    what: str = ""
    how: str = ""

    @property
    def sentence(self) -> str:
        """What a person has to do, in one line."""
        match self.kind:
            case "recipient":
                return f"notify {self.where} that the {self.what} of {self.how} is superseded"
            case "not listed":
                return f"not listed: {self.where}"
            case _:
                return f"{self.where}: {self.how or ENDINGS.get(self.what, self.what)}"


@dataclass(frozen=True, slots=True)
class RequestView:
    """A request as it is shown; texts as far as they are not erased.

    Attributes:
        entry: what it says; before: what it said, and until when.
        days_left: below 0: overdue.
        repeats: numbers of earlier requests about the same names that are not closed.
        waiting: how many of `runs` have not answered, or were not looked at (access).
        by_hand: each place or recipient once.
    """

    request: str
    state: RequestState
    entry: Entry
    before: Sequence[tuple[Entry, str]]
    due: str
    days_left: int
    repeats: Sequence[str]
    wanted: str
    runs: Sequence[RunOfRequest]
    waiting: int
    by_hand: Sequence[ToDo]
    packs: Sequence[str]
    closed: str
    closed_because: str


@dataclass(frozen=True, slots=True, eq=False)
class Register:
    """The requests of one folder; open, it can be written."""

    folder: Path
    _ledger: Ledger

    def facts(self) -> list[Fact]:
        """Return every fact, in order, once the whole chain is verified."""
        return [fact_of(each) for each in self._ledger.replay()]

    def requests(self) -> dict[str, Request]:
        """Return every request by its number, in the order in which they came."""
        return requests_of(self.facts())

    def request(self, number: str) -> Request:
        """Return one request.

        Raises:
            ConfigError: there is none.
        """
        requests = self.requests()
        if number not in requests:
            raise ConfigError(
                f"A request is named by its number, found {number!r}, and there are: "
                f"{', '.join(requests) or 'none'}. `covey requests list` shows them."
            )
        return requests[number]

    def views(self, *, masked: bool = False) -> list[RequestView]:
        """Return every request as it is shown, in the order in which they came.

        Args:
            masked: put `REQUESTER` in the place of every name.
        """
        texts, requests = self.texts(), list(self.requests().values())
        if masked:
            texts = without_names(texts, [h for h in texts if h.startswith("p-")])
        return [self._view(each, requests[:i], texts) for i, each in enumerate(requests)]

    def view(self, number: str) -> RequestView:
        """Return one request as it is shown.

        Raises:
            ConfigError: there is none.
        """
        self.request(number)
        return next(each for each in self.views() if each.request == number)

    def _view(
        self, request: Request, earlier: Sequence[Request], texts: Mapping[str, str]
    ) -> RequestView:
        entry, names = request.entry, {*request.entry.names}
        folder, closing = self.folder / PACKS, request.closing
        return RequestView(
            request=request.number,
            state=request.state,
            entry=entry.readable(texts),
            before=[(each.readable(texts), day) for each, day in request.before],
            due=entry.due.isoformat(),
            days_left=(entry.due - date.today()).days,
            repeats=[e.number for e in earlier if not e.is_closed and names & {*e.entry.names}],
            wanted=request.wanted,
            runs=[each.readable(texts) for each in request.runs.values()],
            waiting=len(request.waiting),
            by_hand=to_do(request, texts),
            packs=[str(folder / e.pack) for e in request.packs.values() if not closing],
            closed=closing.day if closing else "",
            closed_because=texts.get(closing.reason, ERASED) if closing and closing.reason else "",
        )

    def texts(self) -> dict[str, str]:
        """Return every name and text by its handle."""
        stored = self._ledger.names().items()
        return {handle: text.partition(" ")[2] for handle, text in stored}

    def record(self, facts: Iterable[Fact], texts: Mapping[str, str] | None = None) -> None:
        """Add facts, and the texts that they are the first to be about, at once."""
        known = self._ledger.names()
        new = {h: f"{h} {text}" for h, text in (texts or {}).items() if h not in known}
        self._ledger.append_between([record_of(each) for each in facts], new)

    def replace_texts(self, changed: Mapping[str, str | None], facts: Iterable[Fact]) -> None:
        """Add facts, and change or erase texts, at once; `overwrite_traces` comes next."""
        stored = {h: text and f"{h} {text}" for h, text in changed.items()}
        self._ledger.replace_names(stored, [record_of(each) for each in facts])

    def overwrite_traces(self) -> None:
        """Overwrite what is left of erased texts, unless that was done."""
        facts = self.facts()
        closed = [i for i, each in enumerate(facts) if isinstance(each, RequestClosed)]
        done = [i for i, each in enumerate(facts) if isinstance(each, TracesOverwritten)]
        if not closed or (done and done[-1] > closed[-1]):
            return
        self._ledger.scrub()
        self.record([TracesOverwritten(request=facts[closed[-1]].request)])


def proof_path(run: Path, request: str) -> Path:
    """Return where a run keeps the proof of a request."""
    return RunFolder(run).proofs / f"{request}.json"


def to_do(request: Request, texts: Mapping[str, str], person: str = "") -> tuple[ToDo, ...]:
    """Return what is left to be done by hand, each place or recipient once."""
    steps: dict[tuple[str, str], ToDo] = {}
    for run in request.runs.values():
        if not person or run.person == person:
            for each in json.loads(texts.get(run.left, "[]")):
                steps.setdefault((each["kind"], each["where"]), ToDo(**each))
            if run.ended in ("elsewhere", "unreadable"):
                where = texts.get(run.run, ERASED)
                steps.setdefault(("run", where), ToDo("run", where, run.ended))
    return tuple(steps.values())


def without_names(texts: Mapping[str, str], persons: Collection[str]) -> dict[str, str]:
    """Return the texts with `REQUESTER` in the place of these persons' names."""
    names, masked = [t for h, t in texts.items() if h.startswith("p-")], dict(texts)
    for person in persons:
        mention = Mention.of(texts[person], names)
        for handle, text in masked.items():
            if handle == person or (not handle.startswith("p-") and mention.in_text(text)):
                masked[handle] = mention.masked(text, REQUESTER)
    return masked


def run_handle(place: str) -> str:
    """Return the handle of a run: the same, whichever process puts it down first."""
    return f"r-{hashlib.sha256(place.encode()).hexdigest()[:16]}"


def text_handle() -> str:
    """Return the handle of a text that is kept once for each time it was written."""
    return f"t-{secrets.token_hex(8)}"


@contextmanager
def register_at(folder: Path) -> Generator[Register]:
    """Open a register to write it; it is made if it is not there.

    Raises:
        LedgerError: it cannot be written, or another process does not stop writing it.
    """
    make_folder(folder)
    path, until = folder / FILE, time.monotonic() + LOCKED_SECONDS
    while True:
        try:
            ledger = (Ledger.open if Ledger.exists(path) else Ledger.create)(path, now)
            break
        except LedgerLocked:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)
    with ledger:
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
