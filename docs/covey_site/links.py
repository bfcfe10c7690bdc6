"""Links that hold in the repository, made to hold on the site."""

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

LINK = re.compile(r"(?<=\]\()(?!https?:|#|<)([^)#\s]+)(#[^)\s]*)?(?=\))")
NAMED = re.compile(r"(?<![\[`])`docs/([\w/-]+\.md)`(?![\]`])")
BESIDE = "project"
"""The site's folder for files of the repository that are not in docs."""
PROJECT = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENCES.md",
    "SECURITY.md",
    "benchmarks/README.md",
    "benchmarks/results/*.md",
)
FRONT = "README.md"
"""The repository's front page, for which the site has one of its own."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Where pages come from and go.

    Attributes:
        repository: its root.
        docs: the folder of pages in it.
        folder: the sources of the site.
    """

    repository: Path
    docs: Path
    folder: Path

    def origin(self, page: Path) -> Path:
        """Return the place in the repository of a page of the site."""
        inside = page.relative_to(self.folder)
        if inside.parts[0] == BESIDE:
            return self.repository / inside.relative_to(BESIDE)
        return self.docs / inside

    def project_pages(self) -> list[Path]:
        """Return the places of the pages that are about the project itself."""
        return [self.place(file) for name in PROJECT for file in self.repository.glob(name)]

    def place(self, file: Path) -> Path:
        """Return the place on the site of a file of the repository, copied if need be."""
        if file == self.repository / FRONT:
            return self.folder / "index.md"
        if file.is_relative_to(self.docs):
            return self.folder / file.relative_to(self.docs)
        copy = self.folder / BESIDE / file.relative_to(self.repository)
        if not copy.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, copy)
        return copy


def with_links(text: str, page: Path, sources: Sources) -> str:
    """Return a page's text with every link to a file led to where the site has it."""

    def led(link: re.Match[str]) -> str:
        target, heading = link[1], link[2] or ""
        if not target.startswith("../") and sources.origin(page).parent == sources.docs:
            return link[0]
        there = (sources.origin(page).parent / target).resolve()
        if not there.is_file():
            return link[0]  # a page that is written from the code
        return f"{_relative(sources.place(there), page)}{heading}"

    def linked(mention: re.Match[str]) -> str:
        there = sources.folder / mention[1]
        if there == page or not there.exists():
            return mention[0]
        return f"[{mention[0]}]({_relative(there, page)})"

    return NAMED.sub(linked, LINK.sub(led, text))


def _relative(there: Path, page: Path) -> str:
    """Return the way from a page's folder to a file."""
    return Path(os.path.relpath(there, page.parent)).as_posix()
