"""What is recorded of a request, in order: facts without names.

Who asks, who is responsible, where runs lie and what is written of an item stand in the
register's table of texts, which can be erased. Facts know them by handles.
"""

from dataclasses import asdict, dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from covey.errors import LedgerError
from covey.ledger import Record

__all__ = [
    "AnswerBegun",
    "CaseClosed",
    "CaseClosing",
    "DeadlineExtended",
    "Fact",
    "ItemAdded",
    "ItemSigned",
    "LetterWritten",
    "RequestReceived",
    "RunAnswered",
    "RunAsked",
    "RunLost",
    "RunsSearched",
    "TracesOverwritten",
    "fact_of",
    "record_of",
]


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
        basis: what the request rests on, in the words of `covey.types.BASES`.
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


_readers = {each.__name__: TypeAdapter(each) for each in Fact.__subclasses__()}


def record_of(fact: Fact) -> Record:
    """Return a fact as the register's chain holds it."""
    return Record(None, type(fact).__name__, asdict(fact))


def fact_of(record: Record) -> Fact:
    """Undo `record_of`.

    Raises:
        LedgerError: it is no fact that this version of covey knows.
    """
    try:
        found: Any = _readers[record.kind].validate_python(record.body)
    except (KeyError, ValidationError) as error:
        raise LedgerError(
            f"A register of requests holds facts that covey wrote, found {record.kind!r}, "
            f"which cannot be read: {type(error).__name__}. Use the version of covey that "
            f"wrote it, or restore it from a copy."
        ) from error
    return found
