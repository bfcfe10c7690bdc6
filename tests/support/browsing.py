"""Pages in a real browser, where this machine has one."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

CHROMIUM = Path("/usr/bin/chromium")
needs_browser = pytest.mark.skipif(
    not CHROMIUM.exists(), reason=f"there is no browser at {CHROMIUM}"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        launched.close()


def problems(page: Page, *, minor: bool = False, **options: Any) -> list[str]:
    """Return what axe finds that is serious or worse, or all of it."""
    return [
        f"{violation['id']}: {json.dumps(violation['nodes'][0]['html'])}"
        for violation in Axe().run(page, options=options or None).response["violations"]
        if minor or violation["impact"] in ("serious", "critical")
    ]
