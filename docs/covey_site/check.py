"""What was built: every link leads somewhere, and nothing is loaded from elsewhere."""

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}


class _Page(HTMLParser):
    """The links, loaded files and anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif LOADED.get(tag) in given:
            self.loaded.append(given[LOADED[tag]])


def problems(site: Path) -> list[str]:
    """Return a sentence on everything that is wrong with a built site."""
    pages = {p: _Page(p.read_text()) for p in site.rglob("*.html") if _ours(p)}
    return [each for page in pages for each in _of(page, pages, site)]


def _ours(page: Path) -> bool:
    return not {"_downloads", "_static"} & set(page.parts)


def _of(page: Path, pages: dict[Path, _Page], site: Path) -> Iterator[str]:
    where = page.relative_to(site)
    for address in pages[page].loaded:
        if urlsplit(address).netloc:
            yield f"{where} loads {address} from elsewhere. Keep it in docs/_static."
    for address in (*pages[page].links, *pages[page].loaded):
        if not urlsplit(address).scheme and not _there(address, page, pages):
            yield f"{where} links to {address}, which is not there. Correct the link."


def _there(address: str, page: Path, pages: dict[Path, _Page]) -> bool:
    parts = urlsplit(address)
    file = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    known = pages.get(file)
    return file.exists() and (
        known is None or not parts.fragment or unquote(parts.fragment) in known.anchors
    )
