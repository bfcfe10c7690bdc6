"""Settings that files, pages and commands of this project show are settings that there are."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from covey import Config
from support.setting_keys import setting_keys

ROOT = Path(__file__).parent.parent.parent
FOLDERS = ("docs", "examples", "benchmarks", "src", "tests")
FILES = sorted(ROOT.glob("examples/**/*.toml"))
PAGES = [
    path
    for pages in ("*.md", *(f"{folder}/**/*.md" for folder in FOLDERS))
    for path in sorted(ROOT.glob(pages))
]
COMMANDS = [*PAGES, *sorted(ROOT.glob("docs/results/**/*.json")), *sorted(ROOT.glob("src/**/*.py"))]


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", FILES, ids=name)
def test_a_file_of_settings_is_valid(path):
    assert Config.read(tomllib.loads(path.read_text()))


def blocks(text: str) -> Iterator[str]:
    """Yield what a page shows as TOML: fenced, or indented with a table in it."""
    yield from re.findall(r"^```toml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    indented = re.findall(r"^\n((?: {4}.*\n)+)", prose, re.MULTILINE)
    yield from (each for each in indented if re.search(r"^ {4}\[\w+\]$", each, re.MULTILINE))


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_settings_that_a_page_shows_as_a_file_are_valid(path):
    for block in map(tomllib.loads, blocks(path.read_text())):
        others = {"project", "controller"}  # of pyproject.toml, and desk.toml
        assert others & block.keys() or Config.read(block)


def test_settings_that_commands_set_exist():
    known = setting_keys() | {"section.key"}
    shown = {
        (name(path), key)
        for path in COMMANDS
        for key in re.findall(r"--(?:set|over) ['\"]?([\w.]+)=", path.read_text())
    }
    assert len(shown) > 20
    assert {(page, key) for page, key in shown if key not in known} == set()
