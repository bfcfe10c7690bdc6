"""All sources of the site in one folder, from nothing."""

import re
import shutil
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from covey_site.commands import command_pages, command_tree
from covey_site.links import Sources, with_links
from covey_site.outputs import output_page
from covey_site.python import python_pages
from covey_site.reproduction import SENTENCE, led, reproduction_page
from covey_site.schemas import written_schemas
from covey_site.settings import overview, setting_pages

DOCS = Path(__file__).resolve().parents[1]
TABLE = re.compile(r"^\| section \| what it holds \|\n(?:\|.*\n)+", re.MULTILINE)
OPTIONS = "Options of each command: `covey COMMAND --help`."


def assemble(folder: Path) -> None:
    """Write all sources into a folder, whose old contents go."""
    folder = folder.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(DOCS, folder, ignore=shutil.ignore_patterns("*.py", "covey_site", "_templates"))
    for address, text in written_pages().items():
        page = folder / f"{address}.md"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text)
    for address, text in written_schemas().items():
        (folder / address).parent.mkdir(parents=True, exist_ok=True)
        (folder / address).write_text(text)
    _shorten(folder / "settings.md", TABLE, overview() + "\n")
    _shorten(folder / "commands.md", re.compile(re.escape(OPTIONS)), command_tree())
    _shorten(folder / "results.md", re.compile(re.escape(SENTENCE)), led())
    sources = Sources(DOCS.parent, DOCS, folder)
    for page in (*sorted(folder.rglob("*.md")), *sources.project_pages()):
        page.write_text(with_links(page.read_text(), page, sources))


@cache
def written_pages() -> Mapping[str, str]:
    """Return the pages that are written from the code, by their addresses."""
    return {
        **setting_pages(),
        **command_pages(),
        **output_page(),
        **python_pages(),
        **reproduction_page(DOCS),
    }


def _shorten(page: Path, what: re.Pattern[str], instead: str) -> None:
    """Put links to written pages where the repository's page has a list."""
    text, times = what.subn(lambda _: instead, page.read_text())
    if times != 1:
        raise ValueError(
            f"{page.name} must have {what.pattern!r} once, which the site replaces by links, "
            f"found it {times} times. Correct the page, or this pattern."
        )
    page.write_text(text)
