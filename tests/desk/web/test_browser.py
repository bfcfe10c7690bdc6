"""The pages in a real browser: opened, clicked through, and live."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Route

from covey_desk.web.app import Server
from desk.web.servers import serving
from desk.web.stories import Scenario, written
from support.browsing import browser, needs_browser, problems

__all__ = ["browser"]

SIZES = {"phone": (400, 800), "desk": (1300, 900)}

pytestmark = needs_browser


@dataclass
class Visit:
    """A tab, and what went wrong in it or was asked of elsewhere."""

    page: Page
    address: str
    wrong: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)

    def open(self, path: str) -> None:
        self.page.goto(f"{self.address}{path}")

    def links(self, within: str = "body") -> list[str]:
        script = "links => links.map(link => link.getAttribute('href'))"
        links: list[str] = self.page.eval_on_selector_all(f"{within} a", script)
        return [link for link in links if link.startswith("/")]


@contextmanager
def visiting(context: BrowserContext, server: Server) -> Iterator[Visit]:
    link = urlsplit(server.link)
    page = context.new_page()
    visit = Visit(page, f"{link.scheme}://{link.netloc}")

    def note(route: Route) -> None:
        if urlsplit(route.request.url).netloc != link.netloc:
            visit.elsewhere.append(route.request.url)
            route.abort()
        else:
            route.continue_()

    context.route("**/*", note)
    page.on("console", lambda said: visit.wrong.extend(errors_in(said)))
    page.on("pageerror", lambda error: visit.wrong.append(str(error)))
    page.on("dialog", lambda dialog: visit.wrong.append(f"dialog {dialog.message}"))
    page.goto(server.link)
    yield visit
    page.close()


def errors_in(said: ConsoleMessage) -> list[str]:
    return [said.text] if said.type == "error" else []


@pytest.fixture(scope="module")
def server(shown: Path) -> Iterator[Server]:
    with serving(shown) as running:
        yield running


def every_page(visit: Visit) -> list[str]:
    """Return the address of every page, as a person finds them by their links."""
    known, waiting = dict.fromkeys(["/", "/requests"]), ["/", "/requests"]
    while waiting:
        visit.open(waiting.pop())
        fresh = [link for link in visit.links("main") if link not in known]
        few = [link for link in fresh if "/clients/" not in link] + [
            link for link in fresh if "/clients/" in link
        ][:2]
        known |= dict.fromkeys(few)
        waiting += few
    return list(known)


@pytest.mark.slow
def test_what_happens_is_seen_without_reloading(browser: Browser, tmp_path: Path):
    with (
        written(tmp_path / "live", Scenario(rounds=40), live=True) as live,
        serving(tmp_path) as server,
        visiting(browser.new_context(), server) as visit,
    ):
        live.play(3)
        visit.open(visit.links("tbody")[0])
        page = visit.page
        page.locator("#connection").get_by_text("live", exact=True).wait_for()
        page.locator("#figures summary").click()
        page.locator("#settings summary").focus()
        for t in (4, 5):
            live.play()
            page.locator("#strip").get_by_text(f"round {t} of 40", exact=True).wait_for()
        assert page.locator("#figures").get_attribute("open") is not None
        assert page.evaluate("document.activeElement.tagName") == "SUMMARY"
        assert visit.wrong == []


@pytest.mark.slow
@pytest.mark.parametrize(("size", "scheme"), [("phone", "dark"), ("desk", "light")])
def test_nothing_keeps_anybody_from_using_a_page(browser, server, scheme, size):
    width, height = SIZES[size]
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if scheme == "dark" else "light",
    )
    violations: dict[str, list[str]] = {}
    with visiting(context, server) as visit:
        for path in every_page(visit):
            visit.open(path)
            for summary in visit.page.locator("summary").all():
                if summary.locator("xpath=..").get_attribute("open") is None:
                    summary.click()
            violations[path] = [*problems(visit.page), *too_wide(visit.page)]
        assert (visit.wrong, visit.elsewhere) == ([], [])
    for part in ("/clients/", "/proofs/", "/audit", "/requests/"):
        assert any(part in path for path in violations), part
    context.close()
    assert {path: violation for path, violation in violations.items() if violation} == {}


def too_wide(page: Page) -> list[str]:
    """Say whether a page must be moved sideways to be read."""
    script = "document.documentElement.scrollWidth - window.innerWidth"
    beyond = int(page.evaluate(script))
    return [f"{beyond} pixels beyond the edge"] if beyond > 0 else []
