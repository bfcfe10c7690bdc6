"""Whether a text or a file mentions a client, and not another one of a longer name."""

import json
import mmap
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from covey.types import ClientName

__all__ = ["Mention", "masked"]

LETTER = r"[^\W_]"
SHORT = 6
"""Characters; a shorter name is looked for only where it stands by itself."""

SAMPLE = 8192
"""Bytes at a file's beginning by which text and binary content are told apart."""


@dataclass(frozen=True, slots=True)
class Mention:
    """One client's name, as it is looked for.

    Attributes:
        longer: other clients' names that hold this one: where they stand, it does not.
    """

    name: ClientName
    longer: tuple[ClientName, ...]

    @classmethod
    def of(cls, name: ClientName, known: Collection[ClientName]) -> "Mention":
        """Return how to look for a name among those that are known."""
        longer = {each for each in known if name in each and each != name}
        return cls(name, tuple(sorted(longer, key=len, reverse=True)))

    def in_text(self, text: str) -> bool:
        """Say whether the name stands in a text by itself."""
        return any(found == self.name for found in self._pattern().findall(text))

    def masked(self, text: str, instead: str) -> str:
        """Return the text with something else in the name's place."""
        return self._pattern().sub(
            lambda found: instead if found[0] == self.name else found[0], text
        )

    def in_file(self, path: Path) -> bool:
        """Say whether the name stands in a file, as UTF-8 or as ASCII JSON.

        In binary content a name of some length need not stand by itself: databases put
        one value right after the other.

        Raises:
            OSError: the file cannot be read.
        """
        if path.stat().st_size == 0:
            return False
        with (
            path.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
        ):
            if not any(content.find(each) >= 0 for each in _spelt(self.name)):
                return False
            apart = b"\0" not in content[:SAMPLE] or len(self.name) < SHORT
            wanted = set(_spelt(self.name))
            return any(
                found[0] in wanted
                for found in self._bytes_pattern(apart=apart).finditer(content)
            )

    def _pattern(self) -> re.Pattern[str]:
        names = "|".join(map(re.escape, (*self.longer, self.name)))
        return re.compile(rf"(?<!{LETTER})(?:{names})(?!{LETTER})")

    def _bytes_pattern(self, *, apart: bool) -> re.Pattern[bytes]:
        every = (s for each in (*self.longer, self.name) for s in _spelt(each))
        names = b"|".join(map(re.escape, every))
        letter = LETTER.encode()
        if apart:
            return re.compile(rb"(?<!%b)(?:%b)(?!%b)" % (letter, names, letter))
        return re.compile(names)


def masked(text: str, names: Collection[ClientName], instead: str) -> str:
    """Return the text with something else in the place of any of these names."""
    for name in sorted((n for n in names if n in text), key=len, reverse=True):
        text = Mention(name, ()).masked(text, instead)
    return text


def _spelt(name: ClientName) -> Iterator[bytes]:
    """Yield how a file can hold a name."""
    plain = name.encode("utf-8", "surrogatepass")
    yield plain
    escaped = json.dumps(name)[1:-1].encode("ascii")
    if escaped != plain:
        yield escaped
