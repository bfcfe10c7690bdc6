"""The built site in a browser, opened from disk: nothing serious for axe, and a search.

`make docs` builds it; where that was not done, there is nothing to look at.
"""

from pathlib import Path

import pytest

from support.browsing import browser, needs_browser, problems

__all__ = ["browser"]

SITE = Path(__file__).parents[1] / "build" / "site"
STATIC = {"_static", "_downloads", "_modules"}
BY_CODE = SITE / "reference"
"""Where the pages are that are written from the code, a folder for each kind."""
FASTER = {"resultTypes": ["violations"], "preload": False}
"""Of axe: nothing on what it finds good, no style sheets asked for once more."""

pytestmark = [
    pytest.mark.slow,
    needs_browser,
    pytest.mark.skipif(not (SITE / "index.html").exists(), reason="`make docs` builds the site"),
]


def pages() -> list[str]:
    """Name all pages written by hand, and the longest of each kind that is not."""
    built = sorted(
        (page for page in SITE.rglob("*.html") if not STATIC & set(page.parts)),
        key=lambda page: page.stat().st_size,
    )
    longest = {page.parent: page for page in built if page.is_relative_to(BY_CODE)}
    by_hand = [page for page in built if not page.is_relative_to(BY_CODE)]
    return [str(page.relative_to(SITE)) for page in (*by_hand, *longest.values())]


def test_every_kind_of_page_is_looked_at():
    looked_at = set(pages())
    docs = SITE.parents[1] / "docs"
    by_hand = {page.relative_to(docs).with_suffix(".html") for page in docs.rglob("*.md")}
    assert {str(page) for page in by_hand} <= looked_at
    kinds = {Path(page).parent.name for page in looked_at if page.startswith("reference")}
    assert kinds == {"reference", "commands", "python", "settings"}


@pytest.mark.parametrize(("width", "scheme"), [(400, "dark"), (1300, "light")])
def test_pages_fit_the_window_and_can_be_read_by_everybody(browser, width, scheme):
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda said: wrong.append(said.text))
    for name in pages():
        page.goto(f"file://{SITE}/{name}")
        assert problems(page, **FASTER) == [], name
        too_wide = "document.documentElement.scrollWidth > window.innerWidth"
        assert not page.evaluate(too_wide), name
        assert wrong == [], name
    context.close()


def test_the_search_finds_what_pages_say_in_code(browser):
    page = browser.new_page()
    page.goto(f"file://{SITE}/search.html?q=clients_frame")
    results = page.locator("#search-results li > a")
    results.filter(has_text="covey.Run.clients_frame").wait_for()
    results.filter(has_text="Your first federation").wait_for()
    page.close()


def test_the_search_finds_a_setting_without_a_server(browser):
    page = browser.new_page()
    wrong: list[str] = []
    requests: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(f"file://{SITE}/index.html")
    page.locator("input[name=q]").first.fill("max_newcomers")
    page.locator("input[name=q]").first.press("Enter")
    page.locator("#search-results li a", has_text="method.max_newcomers").first.click()
    page.wait_for_url("**/reference/settings/method.html**")
    assert wrong == []
    assert [url for url in requests if not url.startswith(("file:", "data:"))] == []
    page.close()
