"""Requests to leave by the day they are due, over all runs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from covey.errors import CoveyError
from covey.requests import Case, Item, read_register
from covey.requests.register import ERASED, FILE

__all__ = ["FOLDER", "request_page", "requests_page"]

FOLDER = "requests"
"""Where a root has its register, unless `covey requests` was told another place."""

SOON_DAYS = 7


@dataclass(frozen=True, slots=True)
class Held:
    """A case with its texts, as far as they are not erased."""

    case: Case
    texts: Mapping[str, str]
    days_left: int

    def text(self, handle: str) -> str:
        """Return a name or text; "" of no handle."""
        return self.texts.get(handle, ERASED) if handle else ""

    @property
    def urgency(self) -> str:
        """Say how its day is: past, soon or later; "": it is closed."""
        if self.case.is_closed:
            return ""
        if self.days_left < 0:
            return "past"
        return "soon" if self.days_left <= SOON_DAYS else "later"

    @property
    def runs(self) -> Sequence[tuple[str, str, str]]:
        """The runs that know the name, what each calls the request, and its answer."""
        case = self.case
        return [
            (
                self.text(each),
                case.asked.get(each, ""),
                case.answered[each].answer if each in case.answered else "",
            )
            for each in dict.fromkeys((*case.known, *case.asked))
        ]

    @property
    def by_hand(self) -> Sequence[tuple[Item, str]]:
        """What has to be done by hand, with its text."""
        return [(item, self.text(item.text)) for item in self.case.items]


def requests_page(roots: Iterable[Path]) -> dict[str, Any]:
    """Return every case: those that are open by their day, then those that are closed."""
    held, problems = _held(roots)
    held.sort(key=lambda each: (each.case.is_closed, each.case.due, each.case.number))
    return {
        "held": held,
        "problems": problems,
        "waiting": [each for each in held if not each.case.is_closed],
    }


def request_page(roots: Iterable[Path], number: str) -> dict[str, Any] | None:
    """Return one case; None: there is none."""
    found = (each for each in _held(roots)[0] if each.case.number == number)
    held = next(found, None)
    return None if held is None else {"held": held, "case": held.case}


def _held(roots: Iterable[Path]) -> tuple[list[Held], list[str]]:
    """Return all cases, and why those of some register cannot be read."""
    today = datetime.now(UTC).astimezone().date()
    held: list[Held] = []
    problems: list[str] = []
    for root in roots:
        if not (root / FOLDER / FILE).is_file():
            continue
        try:
            with read_register(root / FOLDER) as register:
                cases, texts = register.cases(), register.texts()
        except (CoveyError, OSError, ValueError) as error:
            problems.append(str(error))
            continue
        held += [Held(c, texts, (c.due - today).days) for c in cases.values()]
    return held, problems
