"""The register of requests: facts in a hash chain, and the texts that they are about.

One ledger file: its events are the facts, and its table of clients, the only one that can
be erased from, holds every name and text under its handle.
"""

import secrets
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from covey.atomic_io import make_folder
from covey.errors import ConfigError
from covey.ledger import Ledger
from covey.requests.case import Case, cases_of
from covey.requests.facts import (
    CaseClosed,
    Fact,
    TracesOverwritten,
    fact_of,
    record_of,
)
from covey.runtime.folder import now

__all__ = [
    "ERASED",
    "Register",
    "handle_of",
    "read_register",
    "register_at",
    "text_handle",
]

FILE = "register.sqlite"
ERASED = "[erased]"
"""What is shown of a text that is not there any more."""


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

    def record(
        self, facts: Iterable[Fact], texts: Mapping[str, str] | None = None
    ) -> None:
        """Add facts, and the texts that they are the first to be about, at once."""
        known = self._ledger.names()
        new = {
            h: _stored(h, text) for h, text in (texts or {}).items() if h not in known
        }
        self._ledger.append_between([record_of(each) for each in facts], new)

    def replace_texts(
        self, changed: Mapping[str, str | None], facts: Iterable[Fact]
    ) -> None:
        """Add facts, and change or erase texts, at once; `overwrite_traces` comes next."""
        stored = {h: text and _stored(h, text) for h, text in changed.items()}
        self._ledger.replace_names(stored, [record_of(each) for each in facts])

    def overwrite_traces(self) -> None:
        """Overwrite what is left of erased texts, unless that was done."""
        facts = self.facts()
        closed = [i for i, each in enumerate(facts) if isinstance(each, CaseClosed)]
        done = [
            i for i, each in enumerate(facts) if isinstance(each, TracesOverwritten)
        ]
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
