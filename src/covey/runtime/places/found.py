"""The search target, and the places that were found."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from covey.config import Config
from covey.runtime.folder import RunFolder
from covey.runtime.mentions import Mention, masked
from covey.types import ClientName, Handle

__all__ = [
    "COVEY",
    "YOU",
    "Finding",
    "Findings",
    "Kind",
    "Place",
    "Search",
    "SearchTarget",
]

Kind = Literal[
    "ledger",
    "request",
    "data",
    "preferences",
    "settings",
    "model",
    "updates",
    "page",
    "copy",
    "run",
    "deployment",
    "secret",
    "file",
]

Actor = Literal["covey deletes it with forget", "you"]
COVEY: Actor = "covey deletes it with forget"
YOU: Actor = "you"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a client's name, or something that came of its data, was found.

    Attributes:
        path: a file, a folder, a database without its password, or a function.
        what: what stands there.
        who_must_act: whether `covey forget` deletes it, or a person has to.
        how: what to do, in one sentence.
    """

    path: str
    what: str
    kind: Kind
    who_must_act: Actor
    how: str


Finding = Place | str
"""A place; or, as a sentence, what could not be searched."""

Findings = Iterator[Finding]


@dataclass(frozen=True, slots=True)
class Search:
    """All that was found, and what was not searched, in sentences."""

    places: tuple[Place, ...]
    not_searched: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SearchTarget:
    """The client to search for, and the run.

    Attributes:
        folder: the run's.
        config: its settings.
        known: the names of all clients that the run knows.
        first_round: in which the client's data were used; None: in none.
    """

    folder: RunFolder
    config: Config
    name: ClientName
    handle: Handle
    known: frozenset[ClientName]
    first_round: int | None

    @property
    def mention(self) -> Mention:
        """How the name is looked for."""
        return Mention.of(self.name, self.known)

    def display_path(self, path: Path, root: Path | None = None) -> str:
        """Return a path for the client's eyes: what lies below `root` names nobody else."""
        top = root.absolute() if root is not None else Path(path.anchor)
        whole = path.absolute()
        if not whole.is_relative_to(top):
            top = Path(whole.anchor)
        return str(top / self.without_other_names(str(whole.relative_to(top))))

    def without_other_names(self, text: str) -> str:
        """Return a text without the names of the other clients."""
        return masked(text, self.known - {self.name}, "[another client]")
