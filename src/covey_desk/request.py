"""A person's request over all runs: what it says, what each run did, and when it is due.

A request has to be answered (GDPR Art. 12(3)) within one month of receipt, which two further
months extend if the requester hears the reason within the first one. A month ends on the day
of the same number, or on its last day (Regulation 1182/71, Art. 3(2)(c)). Holidays and
weekends make it no longer.
"""

from calendar import monthrange
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Literal, get_args

from covey import ConfigError
from covey.base.as_json import HIDDEN
from covey.base.files import path_inside
from covey.runs.folder import RunFolder

RequestBasis = Literal["erasure", "withdrawal", "restriction", "objection", "access"]
REQUEST_BASES: tuple[RequestBasis, ...] = get_args(RequestBasis)
ARTICLES = dict(zip(REQUEST_BASES, ("17", "7(3)", "18", "21", "15"), strict=True))
"""What each rests on in the GDPR."""
Language = Literal["en", "de"]
LANGUAGES: tuple[Language, ...] = get_args(Language)
Ending = Literal["before", "denied", "unclear", "elsewhere", "gone", "unreadable"]
"""Why a run gives no answer here: an earlier request was answered in it (so that the models still
hold what they learnt, or perhaps do), somebody answered in it past the register, it is deleted,
or it cannot be read."""
EXACT = ("retrain", "subtract")
"""Answers after which no model holds what it learnt from the client."""
RequestState = Literal["open", "answering", "answered", "denied", "closing", "closed"]
"""`denied`: erasure is requested, every run answered, and a model holds or may hold the data."""

ENDINGS: Mapping[str, str] = {
    "": "not answered",
    "before": "answered before, by an earlier request",
    "denied": "denied before: the model still holds what it learnt",
    "unclear": "left before: the model may still hold what it learnt",
    "elsewhere": "does not know the name any more: find out who answered there",
    "gone": "deleted",
    "unreadable": "cannot be read: find out whether it has the name",
}


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
            f"{what} must be a day such as 2027-01-31, found {text!r}: write YEAR-MONTH-DAY."
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterEntry:
    """What a request says.

    Attributes:
        received: on which day, ISO 8601.
        reference: the office's own; "": none.
        extended: when the requester heard that the answer takes longer; "": it does not.
        reason: why.
        salts: of a client that left and comes back, as its earlier answers had them.
    """

    names: tuple[str, ...]
    received: str
    basis: RequestBasis
    reference: str = ""
    language: Language = "en"
    extended: str = ""
    reason: str = ""
    salts: tuple[str, ...] = field(default=(), repr=False, metadata=HIDDEN)

    @property
    def due(self) -> date:
        """The last day on which it can be answered."""
        return due_date(date.fromisoformat(self.received), extended=bool(self.extended))


@dataclass(frozen=True, slots=True)
class ToDo:
    """Something that no answer does.

    Attributes:
        kind: "stays": what lasts as long as its run, and takes no date.
        where: a place, a recipient, a run, or what covey has no list of.
        what: the kind of the place or of the copy, or the `Ending` of the run.
        how: what is there, and what to do.
        done: on which day a person did it, ISO 8601; "": nobody said so.
    """

    kind: Literal["place", "recipient", "run", "not listed", "stays"]
    where: str
    what: str = ""
    how: str = ""
    done: str = ""

    @property
    def waits(self) -> bool:
        """Whether a person still has to do it, and to say when."""
        return self.kind != "stays" and not self.done

    @property
    def sentence(self) -> str:
        """What a person has to do, in one line."""
        match self.kind:
            case "recipient":
                return f"notify {self.where} of the answer: it has the {self.what} of {self.how}"
            case "not listed":
                return f"look through {self.where}"
            case "stays":
                return f"{self.where}: {self.how}"
            case _:
                return f"{self.where}: {self.how or ENDINGS.get(self.what, self.what)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOfRequest:
    """What a run did about one person.

    Attributes:
        person: the name.
        run: its folder.
        run_request: its own identifier of the request.
        answer: what was answered; "": nothing yet, or `ended` says why there is none.
        answered: when, ISO 8601.
        proof_sha256: of the proof's file.
        proof: its path.
        reason: why there is no answer yet, after an attempt.
        index: which of the request's names this is, from 1.
        held: what the run holds on the person, as JSON, once that was looked up.
        left: what the answer left to be done by hand.
    """

    request: str
    person: str
    run: str
    run_request: str = ""
    answer: str = ""
    answered: str = ""
    model_changed: bool = False
    proof_sha256: str = ""
    ended: Ending | Literal[""] = ""
    proof: str = ""
    reason: str = ""
    index: int = field(metadata=HIDDEN)
    held: str = field(default="", metadata=HIDDEN)
    left: Sequence[ToDo] = field(default=(), metadata=HIDDEN)

    @property
    def outcome(self) -> str:
        """What came of it, in words."""
        return self.answer or ENDINGS[self.ended]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request; texts as far as they are not erased.

    Attributes:
        request: its number.
        days_left: below 0: overdue.
        repeats: numbers of earlier requests about the same names that are not closed.
        wanted: the answer that runs give; "": nothing was begun.
        waiting: how many of `runs` have not answered, or were not looked at (access).
        by_hand: each place or recipient once.
        packs: of persons to whom nothing was answered since.
        nearest: for names that no run has, after a search: which ones may be meant.
        closed: from which day on its names are deleted; "": it is open.
    """

    request: str
    state: RequestState
    entry: RegisterEntry
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
    nearest: Mapping[str, str] = field(default_factory=dict[str, str], metadata=HIDDEN)

    @property
    def is_open(self) -> bool:
        """Whether nobody has begun to close it."""
        return self.state not in ("closing", "closed")

    @property
    def unanswered(self) -> list[RunOfRequest]:
        """The runs that have not answered, or were not looked at (access)."""
        return unanswered(self.entry.basis, self.runs)

    @property
    def denied(self) -> list[RunOfRequest]:
        """The runs whose models hold, or may hold, data that are to be erased."""
        return denied(self.entry.basis, self.runs)

    def outcome(self, run: RunOfRequest) -> str:
        """Return what came of one of its runs, in words."""
        looked_up = self.entry.basis == "access" and not self.waiting and not run.ended
        return "it is in the statement" if looked_up else run.outcome

    def pack_name(self, index: int) -> str:
        """Return what the pack of one of its persons is called."""
        return f"request-{self.request}-{index}"

    def has_pack(self, index: int) -> bool:
        """Say whether one of its persons has a pack that is not older than an answer."""
        return any(Path(pack).name == self.pack_name(index) for pack in self.packs)


def unanswered(basis: RequestBasis, runs: Iterable[RunOfRequest]) -> list[RunOfRequest]:
    """Return the runs that have not answered, or were not looked at (access)."""
    access = basis == "access"
    return [e for e in runs if not (e.ended or (e.held if access else e.answer))]


def denied(basis: RequestBasis, runs: Iterable[RunOfRequest]) -> list[RunOfRequest]:
    """Return the runs whose models hold, or may hold, data that are to be erased."""
    weak = ("denied", "unclear")
    left = [e for e in runs if e.ended in weak or (e.answer and e.answer not in EXACT)]
    return left if basis == "erasure" else []


def by_hand(runs: Iterable[RunOfRequest], done: Mapping[str, str]) -> tuple[ToDo, ...]:
    """Return what no answer does, each place or recipient once, with the days on `done`."""
    steps: dict[tuple[str, str], ToDo] = {}
    for run in runs:
        for item in run.left:
            steps.setdefault((item.kind, item.where), item)
        if run.ended in ("elsewhere", "unreadable"):
            steps.setdefault(("run", run.run), ToDo("run", run.run, run.ended))
    dated = [replace(e, done=done.get(f"{e.kind} {e.where}", "")) for e in steps.values()]
    return tuple(sorted(dated, key=lambda item: item.kind == "stays"))


def proof_path(run: Path, request: str) -> Path:
    """Return where a run keeps the proof of a request."""
    return path_inside(RunFolder(run).proofs, f"{request}.json")
