"""The words of the glossary, each with an anchor and found by the search."""

import re
from collections.abc import Iterator

__all__ = ["with_terms", "words_of"]

TABLE = re.compile(r"^\| word \| meaning \|\n\|---\|---\|\n((?:\|.*\n?)+)", re.MULTILINE)
COMMA = re.compile(r",\s+(?![^(]*\))")
"""A comma between words, and not between the short forms of one."""


def with_terms(page: str) -> str:
    """Return the page with a directive in place of its table."""
    entries = ("\n".join([*words, f"  {meaning}", ""]) for words, meaning in _rows(page))
    return TABLE.sub(lambda _: "\n".join(["```{glossary}", *entries, "```\n"]), page)


def words_of(page: str) -> list[str]:
    """Return all words that the page's table explains."""
    return [word for words, _ in _rows(page) for word in words]


def _rows(page: str) -> Iterator[tuple[list[str], str]]:
    for table in TABLE.findall(page):
        for row in table.splitlines():
            words, meaning = (cell.strip() for cell in row.strip("| ").split(" | "))
            yield COMMA.split(words), meaning
