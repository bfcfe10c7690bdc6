"""The licence of every distribution that covey needs, as the installed metadata have it.

`make licences` writes LICENCES.md.
"""

import sys
from collections.abc import Iterator
from functools import cache
from importlib.metadata import distribution

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

EXTRAS = ("", "flower", "postgres", "serve", "docs", "dev")
LONGEST = 40
"""Characters of a licence's name; longer fields hold its text."""

HEAD = """# Licences

covey is under Apache-2.0. This is the licence of every distribution that it needs,
directly or through another one, as the metadata of the installed versions
(`constraints.txt`) state it, on Linux with Python 3.11. "needed for": nothing is
a plain install; `docs` and `dev` are for working on covey, and are not shipped.
`make licences` writes this page; a test compares it with what is installed.

| distribution | licence | needed for |
|---|---|---|
"""


def needed(name: str, extras: frozenset[str], seen: set[tuple[str, str]]) -> None:
    """Add a distribution and all that it needs, each with the extra that asks for it."""
    for extra in ("", *sorted(extras)):
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        for line in distribution(name).requires or ():
            wanted = Requirement(line)
            if wanted.marker is None or wanted.marker.evaluate({"extra": extra}):
                inner = frozenset(wanted.extras)
                needed(canonicalize_name(wanted.name), inner, seen)


@cache
def all_needed() -> dict[str, str]:
    """Return every distribution, and the first of covey's extras that needs it."""
    licences: dict[str, str] = {}
    for extra in EXTRAS:
        seen: set[tuple[str, str]] = set()
        needed("covey", frozenset({extra} - {""}), seen)
        for name, _ in seen:
            licences.setdefault(name, extra)
    del licences["covey"]
    return dict(sorted(licences.items()))


def licence_of(name: str) -> str:
    """Return a distribution's licence, or the title of its text; "": neither is there."""
    metadata = distribution(name).metadata.json
    expression = str(metadata.get("license_expression", ""))
    licence = expression or str(metadata.get("license", ""))
    if licence not in {"", "UNKNOWN"} and len(licence.strip()) <= LONGEST:
        return licence.strip()
    classified = " or ".join(sorted(_classified(metadata.get("classifier", []))))
    return expression or classified or _title_of(name)


def _title_of(name: str) -> str:
    texts = map(distribution(name).read_text, ("licenses/LICENSE", "LICENSE"))
    text = next(filter(None, texts), "")
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def _classified(classifiers: str | list[str]) -> Iterator[str]:
    for classifier in classifiers:
        kind, *_, name = classifier.split(" :: ")
        if kind == "License":
            yield name


def page() -> str:
    """Return LICENCES.md."""
    rows = (f"| {name} | {licence_of(name)} | {extra} |\n" for name, extra in all_needed().items())
    return HEAD + "".join(rows)


if __name__ == "__main__":
    sys.stdout.write(page())
