"""What `covey requests` tells of cases, letters and outcomes."""

from typing_extensions import TypedDict

from covey.requests import RunOutcome
from covey.requests.case import CaseState

__all__ = [
    "CaseTold",
    "CasesTold",
    "LettersWritten",
    "OutcomesTold",
    "TemplatesWritten",
]


class RunOfCase(TypedDict):
    """A run that knows the name.

    Attributes:
        request: its identifier there; empty: not asked yet.
        answer: empty: none yet.
    """

    run: str
    request: str
    answer: str


class ItemTold(TypedDict):
    """Something that is done by hand.

    Attributes:
        item: its number.
        signed_by: empty: nobody yet.
        kept: why something of it is kept; empty: nothing is.
    """

    item: int
    kind: str
    text: str
    signed_by: str
    signed_on: str
    note: str
    kept: str


class CaseTold(TypedDict):
    """One person's request, over all runs.

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
    basis: str
    owner: str
    wanted: str
    runs: list[RunOfCase]
    by_hand: list[ItemTold]
    letters: dict[str, str]
    closed_by: str


class CasesTold(TypedDict):
    """Several cases."""

    cases: list[CaseTold]


class OutcomesTold(TypedDict):
    """What came of cases in runs."""

    outcomes: list[RunOutcome]


class LetterTold(TypedDict):
    """A letter that was written, as an HTML page."""

    path: str
    to: str
    sha256: str


class LettersWritten(TypedDict):
    """The letters of a case."""

    letters: list[LetterTold]


class TemplatesWritten(TypedDict):
    """Templates of letters that were written.

    Attributes:
        templates: names of files.
    """

    templates: list[str]
